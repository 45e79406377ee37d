#include "csrc/schedule/joint/holes.h"

#include "csrc/facts/rounding.h"
#include "csrc/schedule/joint/lifetimes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

namespace berth::schedule {
namespace {

struct Piece {
  Bytes begin = 0, bytes = 0;
};

// What is taken of the arena, tick by tick.
class Arena {
 public:
  Arena(const graph::Schedule& schedule, Lifetimes lifetimes)
      : schedule_(schedule),
        lifetimes_(std::move(lifetimes)),
        births_(schedule.buffers.size(), 0) {}

  // The largest piece that no buffer has at the tick. Ticks come in order.
  Piece largest_free(std::uint64_t tick, Bytes capacity) {
    go_to(tick);
    Piece largest;
    Bytes free = 0;
    const auto end_at = [&](Bytes end) {
      if (end > free && end - free > largest.bytes) largest = {free, end - free};
    };
    for (const auto& [begin, end] : taken_) {
      end_at(begin);
      free = std::max(free, align_up(end, facts::kCudaUnit));
    }
    end_at(capacity);
    return largest;
  }

 private:
  void go_to(std::uint64_t tick) {
    for (; next_ < lifetimes_.all.size() && lifetimes_.all[next_].birth <= tick; ++next_) {
      const Lifetimes::One& one = lifetimes_.all[next_];
      if (one.buffer == Lifetimes::One::kWorkspace) continue;
      const Bytes offset = schedule_.buffers[one.buffer].offsets[births_[one.buffer]++];
      if (one.bytes == 0 || offset == graph::Buffer::kNoOffset) continue;
      ends_.emplace(one.end, taken_.emplace(offset, offset + one.bytes));
    }
    for (; !ends_.empty() && ends_.top().first <= tick; ends_.pop())
      taken_.erase(ends_.top().second);
  }

  using Taken = std::multimap<Bytes, Bytes>;  // begin, end
  struct Later {
    using End = std::pair<std::uint64_t, Taken::iterator>;
    bool operator()(const End& a, const End& b) const { return a.first > b.first; }
  };
  const graph::Schedule& schedule_;
  const Lifetimes lifetimes_;
  std::vector<std::size_t> births_;  // of each buffer, so far
  std::size_t next_ = 0;             // lifetime
  Taken taken_;
  std::priority_queue<Later::End, std::vector<Later::End>, Later> ends_;
};

// The fastest alternative that needs no more and takes and gives the same; nothing where the one it
// has is.
std::optional<std::uint32_t> faster(const graph::Operator& op, std::uint32_t has, Bytes workspace) {
  const graph::Alternative& now = op.alternatives[has];
  std::uint32_t best = has;
  for (std::uint32_t a = 0; a < op.alternatives.size(); ++a) {
    const graph::Alternative& alternative = op.alternatives[a];
    if (alternative.ns < op.alternatives[best].ns && alternative.workspace <= workspace &&
        alternative.reads == now.reads && alternative.writes == now.writes &&
        alternative.in_place == now.in_place)
      best = a;
  }
  return best == has ? std::nullopt : std::optional(best);
}

}  // namespace

std::size_t use_holes(const graph::Graph& graph, graph::Schedule& schedule, Bytes capacity,
                      const graph::CopyRates& rates) {
  if (schedule.arena_bytes == 0) return 0;
  Arena arena(schedule, lifetimes_of(graph, schedule, rates));
  graph::Schedule better = schedule;
  std::size_t changed = 0;
  for (std::size_t k = 0; k < better.steps.size(); ++k) {
    graph::ScheduleStep& step = better.steps[k];
    if (step.kind != graph::ScheduleStep::Kind::kRun) continue;
    const graph::Operator& op = graph.operators[step.op];
    if (!faster(op, step.alternative, kMaxBytes)) continue;
    const Piece free = arena.largest_free(2 * k + 2, capacity);
    const auto alternative = faster(op, step.alternative, free.bytes);
    if (!alternative) continue;
    const Bytes workspace = op.alternatives[*alternative].workspace;
    step.alternative = *alternative;
    step.workspace_offset = workspace == 0 ? graph::Buffer::kNoOffset : free.begin;
    better.arena_bytes = std::max(better.arena_bytes, workspace == 0 ? 0 : free.begin + workspace);
    ++changed;
  }
  if (changed == 0) return 0;
  const graph::Verdict before = graph::replay(graph, schedule, rates);
  const graph::Verdict after = graph::replay(graph, better, rates);
  if (!after.violation.empty() || after.ns >= before.ns) return 0;
  better.ns = after.ns;
  better.peak = after.peak;
  schedule = std::move(better);
  return changed;
}

}  // namespace berth::schedule
