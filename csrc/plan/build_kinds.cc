#include "csrc/plan/build_kinds.h"

#include "csrc/core/check.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace berth {
namespace {

// Those that release first, whose shared slots end no sooner than on paths of others; then the
// longest, as others may share the slots of a longer one only; of equally long ones the one whose
// blocks live longest. Where two kinds begin alike, a lane follows the one that came first for as
// long as its bytes are free.
bool comes_before(const StepKind* a, const StepKind* b) {
  if (a->release != b->release) return a->release < b->release;
  const auto weight = [](const StepKind& kind) {
    double sum = 0;
    for (std::size_t k = 0; k < kind.requests.size(); ++k) {
      const StepKind::Request& request = kind.requests[k];
      const double ticks = request.outlives ? static_cast<double>(kind.requests.size() - k)
                                            : static_cast<double>(request.length);
      sum += static_cast<double>(request.bytes) * ticks;
    }
    return sum;
  };
  if (a->requests.size() != b->requests.size()) return a->requests.size() > b->requests.size();
  const double first = weight(*a), second = weight(*b);
  if (first != second) return first > second;
  return a->hash < b->hash;
}

// How far into later steps what outlives its own lives, over all kinds of a lane.
class LaneEnds {
 public:
  LaneEnds(std::span<const StepKind> kinds, std::uint64_t lane) {
    for (const StepKind& kind : kinds) {
      if (kind.lane != lane) continue;
      const auto period = static_cast<std::uint32_t>(kind.requests.size());
      kinds_.push_back({std::min(kind.release, period), period});
      latest_ = std::max(latest_, kinds_.back().release);
    }
  }
  [[nodiscard]] std::uint32_t latest() const noexcept { return latest_; }
  // In the time in which all releases are at one tick.
  [[nodiscard]] std::uint64_t end(const StepKind::Request& request) const noexcept {
    return request.behind != 0 ? std::uint64_t{latest_} + request.behind
                               : std::min(request.wrapped, latest_);
  }
  // Ticks of any kind's step that are before that end.
  [[nodiscard]] std::uint32_t ticks(std::uint64_t end) const noexcept {
    std::uint64_t least = std::numeric_limits<std::uint32_t>::max();
    for (const auto [release, period] : kinds_) {
      const std::uint64_t ticks = end <= release   ? end
                                  : end <= latest_ ? release
                                                   : release + (end - latest_);
      least = std::min({least, ticks, std::uint64_t{period}});
    }
    return static_cast<std::uint32_t>(least);
  }

 private:
  struct Kind {
    std::uint32_t release = 0, period = 0;
  };
  std::vector<Kind> kinds_;
  std::uint32_t latest_ = 0;
};

// The sequences of one lane, made kind by kind.
class Trie {
 public:
  Trie(KindPlan& into, std::uint32_t lane, const LaneEnds& ends)
      : into_(into), lane_(lane), ends_(ends), first_(into.plan.sequences.size()) {}

  void add(const StepKind& kind) {
    const auto period = static_cast<std::uint32_t>(kind.requests.size());
    std::size_t best = kNone;
    std::uint32_t fork = 0;
    for (std::size_t s = first_; s < into_.plan.sequences.size(); ++s) {
      const std::uint32_t alike = shared(s, kind);
      if (best == kNone || alike > fork) {
        best = s;
        fork = alike;
      }
    }
    for (std::uint32_t tick = 0; tick < fork; ++tick) lengthen(best, tick, kind);
    if (best != kNone && fork == period) return;  // it is the beginning of another one
    // The sequence that has the slot before the fork is the one that is left there.
    while (best != kNone && into_.plan.sequences[best].parent >= 0 &&
           fork <= into_.plan.sequences[best].fork)
      best = static_cast<std::size_t>(into_.plan.sequences[best].parent);

    Sequence& own = into_.plan.sequences.emplace_back();
    own.lane = lane_;
    own.parent = best == kNone ? -1 : static_cast<std::int32_t>(best);
    own.fork = fork;
    own.period = period;
    own.marks = {0};
    std::vector<std::optional<std::uint64_t>>& ends = into_.ends.emplace_back();
    for (std::uint32_t tick = fork; tick < period; ++tick) {
      const StepKind::Request& request = kind.requests[tick];
      BERTH_CHECK(request.bytes > 0 && request.bytes <= kMaxBytes, kUsage,
                  "request {} of a kind of step is for {} bytes, the limit is {}", tick,
                  request.bytes, kMaxBytes);
      own.slots.push_back({.offset = request.planned() ? 0 : Slot::kUnplanned,
                           .requested = request.bytes,
                           .size = align_up(request.bytes, into_.plan.alignment),
                           .birth = tick,
                           .length = length_of(kind, tick),
                           .least = least_of(request)});
      ends.push_back(request.outlives ? std::optional(ends_.end(request)) : std::nullopt);
    }
    into_.releases.push_back(std::min(kind.release, period));
    Periods& periods = paths_.emplace_back();
    periods.shortest.assign(period - fork, period);
    periods.longest = periods.shortest;
    for (std::uint32_t tick = fork; tick < period; ++tick)
      periods.outlives.push_back(kind.requests[tick].outlives);
    for (std::uint32_t tick = 0; tick < fork; ++tick) {
      const auto [s, k] = owner(into_.plan.sequences.size() - 1, tick);
      Periods& of = paths_[s - first_];
      of.shortest[k] = std::min(of.shortest[k], period);
      of.longest[k] = std::max(of.longest[k], period);
    }
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  struct Periods {
    std::vector<std::uint32_t> shortest, longest;  // of the paths through each own slot
    std::vector<bool> outlives;                    // whether that outlives its step
  };

  [[nodiscard]] std::uint32_t length_of(const StepKind& kind, std::uint32_t tick) const {
    const StepKind::Request& request = kind.requests[tick];
    const auto period = static_cast<std::uint32_t>(kind.requests.size());
    if (!request.outlives && request.seen != 0) return std::max(1u, request.length);
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(
        period, std::uint64_t{period - tick} + ends_.ticks(ends_.end(request))));
  }

  [[nodiscard]] static Bytes least_of(const StepKind::Request& request) noexcept {
    return request.least < request.bytes ? request.least : 0;
  }

  // The sequence that a path has at a tick, and which of its own slots.
  [[nodiscard]] std::pair<std::size_t, std::size_t> owner(std::size_t path,
                                                          std::uint32_t tick) const {
    while (tick < into_.plan.sequences[path].fork)
      path = static_cast<std::size_t>(into_.plan.sequences[path].parent);
    return {path, tick - into_.plan.sequences[path].fork};
  }

  // How many first requests of a kind may have the slots of a path.
  [[nodiscard]] std::uint32_t shared(std::size_t path, const StepKind& kind) const {
    const auto period = static_cast<std::uint32_t>(kind.requests.size());
    const std::uint32_t end = std::min(into_.plan.sequences[path].period, period);
    const std::uint32_t release = std::min(kind.release, period);
    const bool together = into_.releases[path] == release;
    const std::uint32_t alike = std::min(into_.releases[path], release);
    std::uint32_t tick = 0;
    for (; tick < end && (together || tick < alike); ++tick) {
      const auto [s, k] = owner(path, tick);
      const Slot& slot = into_.plan.sequences[s].slots[k];
      const StepKind::Request& request = kind.requests[tick];
      if (slot.requested != request.bytes || slot.least != least_of(request)) break;
      if (slot.planned() != request.planned()) break;
      if (!slot.planned()) continue;
      const Periods& of = paths_[s - first_];
      if (of.outlives[k] != request.outlives) break;
      const std::uint32_t shortest = std::min(of.shortest[k], period);
      const std::uint32_t longest = std::max(of.longest[k], period);
      const std::uint32_t own = into_.plan.sequences[s].period;
      const std::uint32_t length = std::max(slot.length, length_of(kind, tick));
      if (length > own) break;
      if (shortest != longest && tick + length + (longest > own ? 1 : 0) > own) break;
    }
    return tick;
  }

  void lengthen(std::size_t path, std::uint32_t tick, const StepKind& kind) {
    const auto [s, k] = owner(path, tick);
    Slot& slot = into_.plan.sequences[s].slots[k];
    if (!slot.planned()) return;
    slot.length = std::max(slot.length, length_of(kind, tick));
    if (kind.requests[tick].outlives) {
      std::optional<std::uint64_t>& end = into_.ends[s][k];
      end = std::max(end.value_or(0), ends_.end(kind.requests[tick]));
    }
  }

  KindPlan& into_;
  const std::uint32_t lane_;
  const LaneEnds& ends_;
  const std::size_t first_;
  std::vector<Periods> paths_;
};

}  // namespace

KindPlan skeleton(std::span<const StepKind> kinds, const trace::Program& program, Bytes alignment) {
  BERTH_CHECK(is_power_of_two(alignment) && alignment <= Plan::kMaxAlignment, kUsage,
              "a plan aligned to {}, it must be a power of two up to {}", alignment,
              Plan::kMaxAlignment);
  KindPlan result;
  Plan& plan = result.plan;
  plan.program = program;
  plan.alignment = alignment;
  std::vector<const StepKind*> order;
  for (const StepKind& kind : kinds) {
    // mutant: plan-no-kind
    if (kind.requests.empty()) continue;
    order.push_back(&kind);
    if (std::find(plan.lane_keys.begin(), plan.lane_keys.end(), kind.lane) == plan.lane_keys.end())
      plan.lane_keys.push_back(kind.lane);
  }
  std::sort(order.begin(), order.end(), comes_before);
  for (std::uint32_t lane = 0; lane < plan.lane_keys.size(); ++lane) {
    const LaneEnds ends(kinds, plan.lane_keys[lane]);
    result.latest.push_back(ends.latest());
    Trie trie(result, lane, ends);
    for (const StepKind* const kind : order) {
      if (kind->lane == plan.lane_keys[lane]) trie.add(*kind);
    }
  }
  return result;
}

}  // namespace berth
