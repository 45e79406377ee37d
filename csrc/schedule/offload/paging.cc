#include "csrc/schedule/offload/paging.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <utility>

namespace berth::schedule::offload {
namespace {

using Kind = graph::ScheduleStep::Kind;
using Page = std::uint32_t;  // a buffer that moves, by its number here

// In the place of a step: none.
constexpr std::size_t kNone = ~std::size_t{0};

// Of the largest page: parts that reloads may take ahead of their use, and what is too small to
// leave.
constexpr std::array<Bytes, 6> kAhead = {0, 1, 2, 4, 8, 16};
constexpr std::array<Bytes, 2> kSmaller = {16, ~Bytes{0}};

// Rounds over the step until what stays in one also stays in the next.
constexpr int kRounds = 3;

std::uint64_t ns_of(Bytes bytes, Bytes per_second) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(bytes) * 1'000'000'000 /
                                    per_second);
}

class Movement {
 public:
  Movement(const graph::Graph& graph, const graph::Schedule& schedule,
           const std::vector<bool>& movable, Bytes budget, Bytes ahead, Bytes least_bytes,
           const graph::CopyRates& rates)
      : schedule_(schedule), rates_(rates) {
    find_pages(graph, movable, least_bytes);
    find_uses();
    fits_ = find_room(graph, budget) && find_gaps(ahead);
  }

  [[nodiscard]] std::optional<graph::Schedule> result() {
    if (!fits_) return std::nullopt;
    std::vector<Copy> copies = find_offloads();
    begin_early(copies);
    return written(copies);
  }

 private:
  struct Moving {
    graph::BufferId buffer = 0;
    Bytes bytes = 0;
    bool resident = false;               // else it is born with its first use
    std::size_t dropped = kNone;         // by this step
    std::vector<std::size_t> uses = {};  // steps
    std::vector<bool> away = {};         // by use: whether it is on the host before
  };
  // Between two uses, or before the first one, behind the last one.
  struct Copy {
    Page page = 0;
    std::size_t out_behind = 0;   // a step
    std::size_t in_before = 0;    // a step
    std::size_t used_at = 0;      // the step that it comes back for
    bool from_last_step = false;  // it begins on the host
  };

  void find_pages(const graph::Graph& graph, const std::vector<bool>& movable, Bytes least_bytes) {
    number_.assign(schedule_.buffers.size(), kNobody);
    for (graph::BufferId b = 0; b < schedule_.buffers.size(); ++b) {
      const graph::StorageId storage = schedule_.buffers[b].storage;
      const graph::Storage& one = graph.storages[storage];
      if (one.kind == graph::StorageClass::kInput || !movable[storage] ||
          one.bytes < std::max(least_bytes, Bytes{1}))
        continue;
      number_[b] = static_cast<Page>(moving_.size());
      moving_.push_back({.buffer = b,
                         .bytes = one.bytes,
                         .resident = one.kind == graph::StorageClass::kResident});
    }
    for (const graph::ScheduleStep& step : schedule_.steps)  // those that are copied already
      if ((step.kind == Kind::kOffload || step.kind == Kind::kReload) &&
          number_[step.buffer] != kNobody) {
        moving_[number_[step.buffer]].bytes = 0;
        number_[step.buffer] = kNobody;
      }
  }

  void find_uses() {
    used_.resize(schedule_.steps.size());
    for (std::size_t t = 0; t < schedule_.steps.size(); ++t) {
      const graph::ScheduleStep& step = schedule_.steps[t];
      if (step.kind == Kind::kDrop && number_[step.buffer] != kNobody)
        moving_[number_[step.buffer]].dropped = t;
      if (step.kind != Kind::kRun) continue;
      std::vector<Page>& used = used_[t];
      for (const auto* buffers : {&step.reads, &step.writes})
        for (const graph::BufferId b : *buffers)
          if (number_[b] != kNobody) used.push_back(number_[b]);
      std::sort(used.begin(), used.end());
      used.erase(std::unique(used.begin(), used.end()), used.end());
      for (const Page one : used) moving_[one].uses.push_back(t);
    }
    for (Moving& one : moving_) one.away.assign(one.uses.size(), false);
  }

  // Calls begin(page, step) and end(page, step) where pages that are used are born and dropped.
  template <typename Begin, typename End>
  void for_each_life(const Begin& begin, const End& end) const {
    for (const Moving& one : moving_) {
      if (one.uses.empty()) continue;
      begin(one, one.resident ? 0 : one.uses.front());
      if (one.dropped != kNone) end(one, one.dropped);
    }
  }

  // What the step leaves to pages, and what it takes of them at once.
  bool find_room(const graph::Graph& graph, Bytes budget) {
    graph::Schedule alone = schedule_;
    alone.budget = 0;
    const graph::Verdict verdict = graph::replay(graph, alone, rates_);
    std::vector<Bytes> change(used_.size() + 1, 0);  // modulo 2^64
    for_each_life([&](const Moving& one, std::size_t t) { change[t] += one.bytes; },
                  [&](const Moving& one, std::size_t t) { change[t] -= one.bytes; });
    Bytes all = 0;
    std::uint64_t now = 0;
    Bytes before = 0;  // what comes in before a step is beside what the step lets go of
    for (std::size_t t = 0; t < used_.size(); ++t) {
      const graph::ScheduleStep& step = schedule_.steps[t];
      begins_.push_back(now);
      all += change[t];
      const Bytes others = std::max(before, verdict.live[t] - all);
      before = verdict.live[t] - all;
      if (step.kind == Kind::kRun) {
        const graph::Alternative& taken = graph.operators[step.op].alternatives[step.alternative];
        now += taken.ns;
        before -= taken.workspace;
      }
      if (others + taken_at(t) > budget) return false;
      room_.push_back(budget - others);
    }
    return true;
  }
  [[nodiscard]] Bytes taken_at(std::size_t t) const {
    Bytes bytes = 0;
    for (const Page one : used_[t]) bytes += moving_[one].bytes;
    return bytes;
  }

  // Which are away before which of their uses.
  bool find_gaps(Bytes ahead) {
    const std::size_t length = used_.size();
    std::vector<std::size_t> next(moving_.size(), 0);  // use
    using There = std::pair<std::size_t, Page>;        // by the step of the next use
    std::set<There> there;
    std::vector<std::size_t> next_step(moving_.size(), kNone);
    Bytes bytes = 0;
    const auto leave = [&](std::set<There>::iterator one) {
      bytes -= moving_[one->second].bytes;
      next_step[one->second] = kNone;
      there.erase(one);
    };
    for (int round = 0; round < kRounds; ++round) {
      const std::size_t base = static_cast<std::size_t>(round) * length;
      std::fill(next.begin(), next.end(), 0);
      for (std::size_t t = 0; t < length; ++t) {
        for (const Page one : used_[t]) {
          Moving& page = moving_[one];
          const std::size_t use = next[one]++;
          const bool comes = next_step[one] == kNone;
          // mutant: paging-born
          page.away[use] = comes && (page.resident || use > 0);  // else it is born
          if (comes)
            bytes += page.bytes;
          else
            there.erase({next_step[one], one});
          if (next[one] < page.uses.size()) {
            next_step[one] = base + page.uses[next[one]];
          } else if (page.resident) {
            next_step[one] = base + length + page.uses.front();
          } else {  // it stays until it is dropped
            next_step[one] = kNone;
            // mutant: paging-left
            continue;
          }
          there.emplace(next_step[one], one);
        }
        const Bytes taken = taken_at(t);
        const Bytes most = std::max(taken, room_[t] - std::min(room_[t], ahead));
        // Those in use now are used latest of all, and may be the last ones here.
        // mutant: paging-last
        for (auto one = there.end(); bytes > most && one != there.begin();) {
          --one;
          if (std::binary_search(used_[t].begin(), used_[t].end(), one->second)) continue;
          const auto gone = one++;
          leave(gone);
        }
        if (bytes > room_[t]) return false;
        const graph::ScheduleStep& step = schedule_.steps[t];
        if (step.kind == Kind::kDrop && number_[step.buffer] != kNobody)
          bytes -= moving_[number_[step.buffer]].bytes;
      }
      for (const Moving& one : moving_)
        if (!one.resident && !one.uses.empty() && one.dropped == kNone) bytes -= one.bytes;
    }
    return true;
  }

  [[nodiscard]] std::vector<Copy> find_offloads() const {
    std::vector<Copy> copies;
    for (Page n = 0; n < moving_.size(); ++n) {
      const Moving& one = moving_[n];
      for (std::size_t use = 0; use < one.uses.size(); ++use)
        if (one.away[use])
          copies.push_back({.page = n,
                            .out_behind = use == 0 ? one.uses.back() : one.uses[use - 1],
                            .in_before = one.uses[use],
                            .used_at = one.uses[use],
                            .from_last_step = use == 0});
    }
    std::sort(copies.begin(), copies.end(), [](const Copy& a, const Copy& b) {
      return std::pair(a.used_at, a.page) < std::pair(b.used_at, b.page);
    });
    return copies;
  }

  // Copies in end before their use, one after the other, where there is room for them so long.
  void begin_early(std::vector<Copy>& copies) const {
    std::vector<Bytes> room = room_left(copies);
    std::vector<std::size_t> wanted(copies.size());
    std::uint64_t next = std::numeric_limits<std::uint64_t>::max();  // the copy behind begins
    for (std::size_t n = copies.size(); n-- > 0;) {
      const Copy& one = copies[n];
      const std::uint64_t end = std::min(next, begins_[one.used_at]);
      const std::uint64_t ns = ns_of(moving_[one.page].bytes, rates_.in);
      next = end - std::min(end, ns);
      const auto step = std::upper_bound(begins_.begin(), begins_.end(), next);
      wanted[n] =
          step == begins_.begin() ? 0 : static_cast<std::size_t>(step - begins_.begin()) - 1;
    }
    for (std::size_t n = 0; n < copies.size(); ++n) {
      Copy& one = copies[n];
      const Bytes bytes = moving_[one.page].bytes;
      const std::size_t first = std::max(wanted[n], one.from_last_step ? 0 : one.out_behind + 1);
      while (one.in_before > first && room[one.in_before - 1] >= bytes)
        room[--one.in_before] -= bytes;
    }
  }

  // By step: what no page takes, each there from its use on.
  [[nodiscard]] std::vector<Bytes> room_left(const std::vector<Copy>& copies) const {
    // As changes from step to step, modulo 2^64.
    std::vector<Bytes> change(used_.size() + 1, 0);
    Bytes there = 0;
    for_each_life(
        [&](const Moving& one, std::size_t t) {
          if (!one.away.front()) change[t] += one.bytes;
        },
        // What comes in before a drop is beside what goes.
        [&](const Moving& one, std::size_t t) { change[t + 1] -= one.bytes; });
    for (const Copy& one : copies) {
      change[one.out_behind + 1] -= moving_[one.page].bytes;
      change[one.used_at] += moving_[one.page].bytes;
    }
    std::vector<Bytes> room(used_.size());
    for (std::size_t t = 0; t < room.size(); ++t) {
      there += change[t];
      room[t] = room_[t] - std::min(room_[t], there);
    }
    return room;
  }

  [[nodiscard]] graph::Schedule written(const std::vector<Copy>& copies) const {
    std::vector<std::vector<graph::BufferId>> in(used_.size()), out(used_.size());
    for (const Copy& one : copies) {
      if (!one.from_last_step && one.in_before == one.out_behind + 1) continue;  // it can stay
      const graph::BufferId buffer = moving_[one.page].buffer;
      in[one.in_before].push_back(buffer);
      out[one.out_behind].push_back(buffer);
    }
    graph::Schedule result = schedule_;
    result.steps.clear();
    const auto add = [&](Kind kind, graph::BufferId buffer) {
      graph::ScheduleStep step;
      step.kind = kind;
      step.buffer = buffer;
      result.steps.push_back(std::move(step));
    };
    for (std::size_t t = 0; t < used_.size(); ++t) {
      for (const graph::BufferId one : in[t]) add(Kind::kReload, one);
      result.steps.push_back(schedule_.steps[t]);
      for (const graph::BufferId one : out[t]) add(Kind::kOffload, one);
    }
    return result;
  }

  static constexpr Page kNobody = ~Page{0};
  const graph::Schedule& schedule_;
  const graph::CopyRates& rates_;
  bool fits_ = false;
  std::vector<Moving> moving_;
  std::vector<Page> number_;  // by buffer
  // By step.
  std::vector<std::vector<Page>> used_;
  std::vector<Bytes> room_;
  std::vector<std::uint64_t> begins_;  // where nothing waits
};

}  // namespace

std::optional<graph::Schedule> with_paging(const graph::Graph& graph,
                                           const graph::Schedule& schedule,
                                           const std::vector<bool>& movable, Bytes budget,
                                           Bytes ahead, Bytes least_bytes,
                                           const graph::CopyRates& rates) {
  return Movement(graph, schedule, movable, budget, ahead, least_bytes, rates).result();
}

std::optional<graph::Schedule> best_paging(const graph::Graph& graph,
                                           const graph::Schedule& schedule,
                                           const std::vector<bool>& movable, Bytes budget,
                                           const graph::CopyRates& rates) {
  Bytes largest = 0;
  for (graph::StorageId s = 0; s < graph.storages.size(); ++s)
    if (movable[s] && graph.storages[s].kind != graph::StorageClass::kInput)
      largest = std::max(largest, graph.storages[s].bytes);
  std::optional<graph::Schedule> best;
  std::uint64_t best_ns = 0;
  for (const Bytes part : kAhead)
    for (const Bytes smaller : kSmaller) {
      std::optional<graph::Schedule> found =
          with_paging(graph, schedule, movable, budget, part * largest, largest / smaller, rates);
      if (!found) continue;
      found->budget = budget;
      const graph::Verdict verdict = graph::replay(graph, *found, rates);
      if (!verdict.violation.empty() || (best && verdict.ns >= best_ns)) continue;
      best = std::move(found);
      best_ns = verdict.ns;
    }
  return best;
}

std::vector<bool> made_in(const graph::Graph& graph) {
  std::vector<bool> made;
  for (const graph::Storage& one : graph.storages)
    made.push_back(one.kind == graph::StorageClass::kStep);
  return made;
}

graph::Schedule without_resident_offloads(const graph::Graph& graph, graph::Schedule schedule) {
  std::erase_if(schedule.steps, [&](const graph::ScheduleStep& step) {
    return (step.kind == Kind::kOffload || step.kind == Kind::kReload) &&
           graph.storages[schedule.buffers[step.buffer].storage].kind ==
               graph::StorageClass::kResident;
  });
  return schedule;
}

}  // namespace berth::schedule::offload
