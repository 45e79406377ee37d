#include "csrc/replay/repeated_step.h"

#include "csrc/core/checksum.h"
#include "csrc/trace/snapshot.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace berth::replay {
namespace {

using trace::BlockId;
using trace::Entry;
using trace::Tick;

constexpr std::size_t kNever = ~std::size_t{0};

// One request of the run, of some bytes.
struct RunRequest {
  BlockId id = 0;
  Bytes bytes = 0;
  trace::LaneId lane = 0;
  std::size_t at = 0, freed = kNever;  // indices of entries

  [[nodiscard]] bool same_size(const RunRequest& other) const noexcept {
    return bytes == other.bytes && lane == other.lane;
  }
};

// The requests of a run in their order.
struct Run {
  std::vector<RunRequest> requests;
  std::unordered_map<BlockId, std::size_t> index;
  std::vector<std::size_t> marks;  // indices of entries
  std::size_t recorded = 0;        // entries before it name what was there before the history
  bool begins = true;              // false: something was there before the history

  explicit Run(const Trace& trace) {
    std::uint64_t before = 0;
    std::unordered_set<BlockId> empty;
    for (std::size_t i = 0; i < trace.entries.size(); ++i) {
      const trace::Event& event = trace.entries[i].event;
      if (const auto* request = std::get_if<trace::Request>(&event)) {
        if (request->bytes == 0) {
          empty.insert(request->id);
          continue;
        }
        index[request->id] = requests.size();
        requests.push_back({request->id, request->bytes, request->lane, i, kNever});
      } else if (const auto* free = std::get_if<trace::Free>(&event)) {
        const auto found = index.find(free->id);
        begins &= found != index.end() || empty.contains(free->id);
        if (found != index.end() && requests[found->second].freed == kNever)
          requests[found->second].freed = i;
      } else if (std::holds_alternative<trace::StepMark>(event)) {
        marks.push_back(i);
      } else if (const auto* begin = std::get_if<trace::RangeBegin>(&event)) {
        if (begin->kind == trace::RangeKind::kPhase && trace.name(begin->name) == kBeforeHistory)
          before = begin->range;
      } else if (const auto* end = std::get_if<trace::RangeEnd>(&event)) {
        if (before != 0 && end->range == before) recorded = i + 1;
      }
    }
    begins &= recorded == 0;
  }

  // Requests before an entry.
  [[nodiscard]] std::size_t position(std::size_t entry) const {
    return static_cast<std::size_t>(
        std::lower_bound(requests.begin(), requests.end(), entry,
                         [](const RunRequest& one, std::size_t at) { return one.at < at; }) -
        requests.begin());
  }
};

// --- Which step ---------------------------------------------------------------------------------

// The first request behind the setup: that behind the first ones which stay till the last request
// of the run. What is freed before another request, as the values that fill a weight, is no end of
// the setup.
std::size_t after_setup(const Run& run) {
  std::size_t first = run.position(run.recorded);
  for (std::size_t i = first; i < run.requests.size(); ++i) {
    const RunRequest& request = run.requests[i];
    const bool stays = request.freed == kNever || request.freed > run.requests.back().at;
    const bool brief = i + 1 < run.requests.size() && request.freed < run.requests[i + 1].at;
    if (stays) first = i + 1;
    if (!stays && !brief) break;
  }
  return first;
}

// How many of the last requests came before, `shift` requests earlier, for each shift (Z-algorithm
// over the reversed sequence; Gusfield 1997).
std::vector<std::size_t> matches_of_end(const std::vector<RunRequest>& requests,
                                        std::size_t first) {
  const std::size_t n = requests.size() - first;
  const auto reversed = [&](std::size_t i) -> const RunRequest& {
    return requests[requests.size() - 1 - i];
  };
  std::vector<std::size_t> length(n, 0);
  for (std::size_t i = 1, low = 0, high = 0; i < n; ++i) {
    if (i < high) length[i] = std::min(high - i, length[i - low]);
    while (i + length[i] < n && reversed(i + length[i]).same_size(reversed(length[i]))) ++length[i];
    if (i + length[i] > high) {
      low = i;
      high = i + length[i];
    }
  }
  return length;
}

// Whether hardly a size comes twice and blocks live for a few requests: a stream of requests, of
// which no part is a step. In a step what the forward part makes lives into the backward part.
bool is_stream(const Run& run, std::size_t first) {
  constexpr std::size_t kFew = 64, kShort = 16;
  constexpr double kMostly = 0.9;
  const std::size_t count = run.requests.size() - first;
  if (count < kFew) return false;
  std::unordered_set<std::uint64_t> sizes;
  std::size_t lived = 0, freed = 0;
  for (std::size_t i = first; i < run.requests.size(); ++i) {
    const RunRequest& request = run.requests[i];
    sizes.insert(hash_combine(request.lane, request.bytes));
    if (request.freed == kNever) continue;
    lived += run.position(request.freed) - i;
    ++freed;
  }
  return static_cast<double>(sizes.size()) > kMostly * static_cast<double>(count) &&
         kShort * lived < freed * count;
}

// --- What becomes of its blocks -----------------------------------------------------------------

// Entries [begin, end) of a trace as a step, and where each of its blocks is freed, in it or in a
// later repeat. The k-th request of it is slot k.
class Repeater {
 public:
  struct Death {
    std::size_t slot = 0;
    std::size_t repeats = 0;  // of how many repeats earlier the block is
  };

  // What becomes of a block of which nothing is known.
  enum class Left : std::uint8_t {
    kReplaced,  // it goes just before its successor is requested: every step has one
    kStays,     // it is one of the first step, and has no successor
    kGoesFirst  // it goes as the next repeat begins: the window may be no whole step
  };

  Repeater(const Trace& trace, const Run& run, std::size_t begin, std::size_t end,
           Left left = Left::kReplaced)
      : trace_(trace),
        run_(run),
        begin_(begin),
        end_(end),
        left_(left),
        first_(run.position(begin)),
        period_(run.position(end) - first_),
        fate_(period_, Fate::kLeft) {
    for (std::size_t slot = 0; slot < period_; ++slot) {
      if (of(slot).freed < end_) fate_[slot] = Fate::kFreed;
    }
    // One mark between two repeats: that behind the last request, else that before the first.
    const auto marks_between = [&](std::size_t first, std::size_t last) {
      return std::any_of(run.marks.begin(), run.marks.end(),
                         [&](std::size_t mark) { return mark >= first && mark < last; });
    };
    if (period_ != 0 && marks_between(run.requests[first_ + period_ - 1].at, end))
      marks_from_ = of(0).at;
    see_frees();
    see_what_follows();
  }

  // Bytes of blocks that outlive the window, and that nothing is known to free.
  [[nodiscard]] Bytes left() const {
    Bytes bytes = 0;
    for (std::size_t slot = 0; slot < period_; ++slot)
      bytes += fate_[slot] == Fate::kLeft ? of(slot).bytes : 0;
    return bytes;
  }

  void repeat(std::uint32_t times, bool marks, Trace& result) {
    result.entries.assign(trace_.entries.begin(),
                          trace_.entries.begin() + static_cast<std::ptrdiff_t>(end_));
    tick_ = result.entries.empty() ? 0 : result.entries.back().tick;
    for (const RunRequest& request : run_.requests) {
      if (request.at < end_ && request.freed < end_) freed_.insert(request.id);
    }
    marks = marks && std::none_of(run_.marks.begin(), run_.marks.end(),
                                  [&](std::size_t mark) { return mark >= begin_ && mark < end_; });
    if (marks) end_step(result);
    for (std::uint32_t time = 0; time < times; ++time) {
      add_repeat(result);
      if (marks) end_step(result);
    }
  }

 private:
  enum class Fate : std::uint8_t {
    kFreed,     // in its own repeat
    kTaken,     // in a later one, where the window frees its predecessor
    kFollowed,  // in the next one, as what follows on the window tells
    kLeft,      // nothing is known
  };

  [[nodiscard]] const RunRequest& of(std::size_t slot) const {
    return run_.requests[first_ + slot];
  }

  // A free of an earlier block stands for that of the block in its place, some periods later.
  void see_frees() {
    constexpr std::size_t kMostPeriods = 16;
    std::vector<std::pair<std::size_t, std::size_t>> others;  // entry, request
    for (std::size_t i = begin_; i < end_; ++i) {
      const auto* free = std::get_if<trace::Free>(&trace_.entries[i].event);
      if (free == nullptr) continue;
      const auto found = run_.index.find(free->id);
      if (found == run_.index.end() || found->second >= first_) continue;
      const std::size_t periods = period_ == 0 ? 0 : (first_ - found->second - 1) / period_ + 1;
      const std::size_t slot = found->second + periods * period_ - first_;
      if (periods != 0 && periods <= kMostPeriods && fate_[slot] == Fate::kLeft &&
          stays(slot, periods)) {
        take(i, slot, periods);
      } else {
        others.emplace_back(i, found->second);
      }
    }
    std::map<std::pair<trace::LaneId, Bytes>, std::deque<std::size_t>> left;
    for (std::size_t slot = 0; slot < period_; ++slot) {
      if (fate_[slot] == Fate::kLeft) left[{of(slot).lane, of(slot).bytes}].push_back(slot);
    }
    for (const auto& [entry, request] : others) {
      const auto found = left.find({run_.requests[request].lane, run_.requests[request].bytes});
      if (found == left.end() || found->second.empty()) continue;
      take(entry, found->second.front(), 1);
      found->second.pop_front();
    }
  }
  // Whether the blocks of a slot were of one size for some periods, and those in between still live
  // at the end of the window.
  [[nodiscard]] bool stays(std::size_t slot, std::size_t periods) const {
    for (std::size_t back = 1; back <= periods; ++back) {
      const RunRequest& earlier = run_.requests[first_ + slot - back * period_];
      if (!earlier.same_size(of(slot)) || (back < periods && earlier.freed < end_)) return false;
    }
    return true;
  }
  void take(std::size_t entry, std::size_t slot, std::size_t periods) {
    fate_[slot] = Fate::kTaken;
    taken_[entry] = {slot, periods};
  }

  // The run goes on like the window for a while: what it frees then is freed in every repeat. What
  // a program frees as it ends does not count.
  void see_what_follows() {
    std::size_t alike = 0;
    const std::size_t after = first_ + period_;
    while (alike < period_ && after + alike < run_.requests.size() &&
           run_.requests[after + alike].same_size(of(alike)))
      ++alike;
    const bool ends = std::all_of(
        run_.requests.begin(), run_.requests.begin() + static_cast<std::ptrdiff_t>(first_),
        [](const RunRequest& request) { return request.freed != kNever; });
    for (std::size_t slot = 0; slot < period_; ++slot) {
      if (fate_[slot] != Fate::kLeft || of(slot).freed == kNever) continue;
      const std::size_t requests = run_.position(of(slot).freed) - after;
      if (requests > alike || (requests == alike && ends)) continue;
      fate_[slot] = Fate::kFollowed;
      followed_[requests].push_back(slot);
    }
  }

  // The block of a slot so many repeats ago, 1 being the last; 0 where the run has none.
  [[nodiscard]] BlockId block(std::size_t slot, std::size_t repeats) const {
    if (repeats <= made_.size()) return made_[made_.size() - repeats][slot];
    const std::size_t back = (repeats - made_.size() - 1) * period_;
    return back > first_ + slot ? 0 : run_.requests[first_ + slot - back].id;
  }
  void free(BlockId id, Trace& result) {
    if (id != 0 && freed_.insert(id).second) add(trace::Free{id}, result);
  }
  void add(const trace::Event& event, Trace& result) {
    result.entries.push_back({++tick_, 0, 0, event});
  }

  void add_repeat(Trace& result) {
    std::vector<BlockId> now(period_, 0);
    std::size_t slot = 0;
    const auto free_followed = [&] {
      const auto found = followed_.find(slot);
      if (found == followed_.end()) return;
      for (const std::size_t one : found->second) free(block(one, 1), result);
    };
    free_followed();
    for (std::size_t one = 0; one < period_ && left_ == Left::kGoesFirst; ++one) {
      if (fate_[one] == Fate::kLeft) free(block(one, 1), result);
    }
    for (std::size_t i = begin_; i < end_; ++i) {
      const trace::Event& event = trace_.entries[i].event;
      if (const auto* request = std::get_if<trace::Request>(&event)) {
        if (request->bytes == 0) continue;
        if (fate_[slot] == Fate::kLeft && left_ == Left::kStays) {
          now[slot] = block(slot, 1);
          ++slot;
          free_followed();
          continue;
        }
        if (fate_[slot] == Fate::kLeft && left_ == Left::kReplaced) free(block(slot, 1), result);
        while (run_.index.contains(next_)) ++next_;
        now[slot] = next_++;
        add(trace::Request{now[slot], request->bytes, request->lane, request->tag}, result);
        ++slot;
        free_followed();
      } else if (const auto* freed = std::get_if<trace::Free>(&event)) {
        const auto found = run_.index.find(freed->id);
        if (found == run_.index.end()) continue;
        if (found->second >= first_) {
          free(now[found->second - first_], result);
        } else if (const auto taken = taken_.find(i); taken != taken_.end()) {
          free(block(taken->second.slot, taken->second.repeats), result);
        }
      } else if (const auto* use = std::get_if<trace::Use>(&event)) {
        const auto found = run_.index.find(use->id);
        if (found == run_.index.end()) continue;
        const BlockId id = found->second >= first_ ? now[found->second - first_] : use->id;
        if (id != 0 && !freed_.contains(id)) add(trace::Use{id, use->lane}, result);
      } else if ((std::holds_alternative<trace::StepMark>(event) && i >= marks_from_) ||
                 std::holds_alternative<trace::EventRecord>(event) ||
                 std::holds_alternative<trace::EventWait>(event) ||
                 std::holds_alternative<trace::Synchronize>(event)) {
        add(event, result);
      }
    }
    made_.push_back(std::move(now));
  }

  // A mark of the lane that requests most.
  void end_step(Trace& result) {
    std::map<trace::LaneId, std::size_t> requests;
    for (std::size_t slot = 0; slot < period_; ++slot) ++requests[of(slot).lane];
    const auto most =
        std::max_element(requests.begin(), requests.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most != requests.end()) add(trace::StepMark{most->first}, result);
  }

  const Trace& trace_;
  const Run& run_;
  const std::size_t begin_, end_;
  const Left left_;
  const std::size_t first_, period_;
  std::size_t marks_from_ = 0;                    // marks before this entry are not repeated
  std::vector<Fate> fate_;                        // of each slot
  std::unordered_map<std::size_t, Death> taken_;  // by entry
  std::unordered_map<std::size_t, std::vector<std::size_t>> followed_;  // by requests before
  std::vector<std::vector<BlockId>> made_;                              // by repeat and slot
  std::unordered_set<BlockId> freed_;
  BlockId next_ = 1;
  Tick tick_ = 0;
};

// Entries [begin, end) as a window. What the run frees between the request before it and its first
// one belongs to it: it may end before it frees the same.
StepWindow window_of(const Trace& trace, const Run& run, std::size_t begin, std::size_t end) {
  while (begin > run.recorded &&
         !std::holds_alternative<trace::Request>(trace.entries[begin - 1].event))
    --begin;
  const auto tick = [&](std::size_t entry) {
    return entry < trace.entries.size() ? trace.entries[entry].tick
           : trace.entries.empty()      ? 0
                                        : trace.entries.back().tick + 1;
  };
  return {.first = tick(begin), .last = tick(end)};
}

std::size_t entry_at(const Trace& trace, Tick tick) {
  return static_cast<std::size_t>(
      std::lower_bound(trace.entries.begin(), trace.entries.end(), tick,
                       [](const Entry& entry, Tick t) { return entry.tick < t; }) -
      trace.entries.begin());
}

// The last period of a step that may cover several, by the lane that it was cut by.
StepWindow last_period(const Trace& trace, const Run& run, const Step& step) {
  const std::size_t end = entry_at(trace, step.last_tick);
  const StepLane& lane = step.lanes[step.primary];
  std::uint32_t left = lane.period / std::max<std::uint32_t>(1, step.unrolled);
  std::size_t first = run.position(end);
  while (first > 0 && left > 0) {
    --first;
    left -= trace.lanes[run.requests[first].lane].key == lane.key ? 1 : 0;
  }
  StepWindow window =
      window_of(trace, run, first < run.requests.size() ? run.requests[first].at : end, end);
  window.seen_twice = true;
  return window;
}

// The last period of a run that ends inside a step: as many requests as lie between its last ones
// and where those came before, which is no small part of it. Nothing where more of its blocks are
// left than of the whole run.
std::optional<StepWindow> last_period(const Trace& trace, const Run& run, std::size_t first,
                                      Bytes left) {
  const std::vector<std::size_t> length = matches_of_end(run.requests, first);
  const std::size_t n = length.size();
  constexpr std::size_t kPart = 8;  // less is a loop inside a step
  std::size_t best = 0;
  for (std::size_t shift = n / kPart + 1; shift < n; ++shift) {
    if (length[shift] != 0 && (best == 0 || length[shift] > length[best])) best = shift;
  }
  if (best == 0) return std::nullopt;
  const std::size_t begin = run.requests[run.requests.size() - best - 1].at + 1;
  if (Repeater(trace, run, begin, trace.entries.size()).left() >= left) return std::nullopt;
  return window_of(trace, run, begin, trace.entries.size());
}

// Whether most of what the run requests while the step lasts is of the step: of a small lane that
// repeats beside others that do not the others tell more.
bool is_most(const Trace& trace, const Run& run, const Step& step) {
  const std::size_t requests = run.position(entry_at(trace, step.last_tick)) -
                               run.position(entry_at(trace, step.first_tick));
  return 2 * step.requests.size() >= requests;
}

}  // namespace

std::optional<StepWindow> step_to_repeat(const Trace& trace, const Repeats& repeats) {
  const Run run(trace);
  if (!repeats.kinds.empty()) return std::nullopt;
  if (repeats.step && is_most(trace, run, *repeats.step))
    return last_period(trace, run, *repeats.step);
  const std::size_t first = after_setup(run);
  if (std::all_of(run.requests.begin() + static_cast<std::ptrdiff_t>(first), run.requests.end(),
                  [](const RunRequest& request) { return request.freed == kNever; }))
    return std::nullopt;
  const std::size_t begin = run.requests[first].at, end = trace.entries.size();

  std::vector<std::pair<std::size_t, std::size_t>> whole;  // entries between two marks
  for (std::size_t mark = 1; mark < run.marks.size(); ++mark) {
    const std::size_t from = run.marks[mark - 1] + 1, to = run.marks[mark] + 1;
    if (run.position(from) != run.position(to)) whole.emplace_back(from, to);
  }
  if (whole.size() > 1) return std::nullopt;  // steps that differ
  if (!whole.empty()) return window_of(trace, run, whole[0].first, whole[0].second);
  if (is_stream(run, first)) return std::nullopt;
  const Bytes left = Repeater(trace, run, begin, end).left();
  if (left != 0) {
    if (const auto period = last_period(trace, run, first, left)) return period;
  }
  StepWindow window = window_of(trace, run, begin, end);
  window.whole = false;
  for (const std::size_t mark : run.marks) {
    if (run.position(mark) <= first) continue;
    window = window_of(trace, run, begin, mark + 1);
    window.whole = run.begins;
    break;
  }
  return window;
}

Trace repeat_step(const Trace& trace, const StepWindow& window, std::uint32_t times, bool marks) {
  const Run run(trace);
  Trace result;
  result.program = trace.program;
  result.alignment = trace.alignment;
  result.lanes = trace.lanes;
  result.strings = trace.strings;
  result.shapes = trace.shapes;
  const auto left = window.seen_twice ? Repeater::Left::kReplaced
                    : window.whole    ? Repeater::Left::kStays
                                      : Repeater::Left::kGoesFirst;
  Repeater(trace, run, entry_at(trace, window.first), entry_at(trace, window.last), left)
      .repeat(times, marks, result);
  return result;
}

}  // namespace berth::replay
