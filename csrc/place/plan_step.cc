#include "csrc/place/plan_step.h"

#include "csrc/core/check.h"
#include "csrc/plan/build.h"
#include "csrc/plan/verify.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace berth {

// A sequence is a branch of the same number; every lane's root is a root of its own.
Problem make_problem(const Plan& plan) {
  Problem problem;
  problem.alignment = plan.alignment;
  problem.lanes.assign(plan.lane_keys.empty() ? 1 : plan.lane_keys.size(), PlaceLane{});
  if (!plan.sequences.empty()) problem.branches.clear();
  for (std::uint32_t s = 0; s < plan.sequences.size(); ++s) {
    const Sequence& sequence = plan.sequences[s];
    const bool root = sequence.parent < 0;
    if (root) problem.lanes[sequence.lane].period = sequence.period;
    problem.branches.push_back(
        {root ? s : static_cast<std::uint32_t>(sequence.parent), sequence.fork, sequence.period});
    for (const Slot& slot : sequence.slots) {
      if (!slot.planned()) continue;
      Buffer buffer{.size = slot.size, .birth = slot.birth, .length = slot.length};
      buffer.lane = sequence.lane;
      buffer.branch = s;
      problem.buffers.push_back(buffer);
    }
  }
  for (const PlanEdge& edge : plan.edges) {
    problem.edges.push_back(
        {edge.from_lane, edge.from_tick, edge.to_lane, edge.to_tick, edge.delta});
  }
  return problem;
}

namespace {

// Ticks of one lane with kinds, in the time of the problem.
//
// Some steps release what others left alive, before their tick `release_`; the others are outlived
// by it. The outlived are done before tick `away_`, and in those that release all from tick
// `release_` on comes after it. So what ends there ends behind the outlived, and before what comes
// after the release; sooner than that both run alike, and share slots.
//
// What wraps around further than to its own birth in that time is there always: it is born at tick
// 0 on all paths, which nothing else is. So is what lives through steps of others and is of such a
// one itself.
class KindTime {
 public:
  KindTime(const KindPlan& kinds, std::uint32_t lane) : release_(kinds.releases[lane]) {
    std::uint32_t longest = 0;
    bool spanned = false;
    for_each_slot(kinds, lane,
                  [&](const Sequence& sequence, const Slot&, bool outlived, bool spans) {
                    longest = std::max(longest, sequence.period);
                    spanned |= spans;
                    if (outlived) away_ = std::max(away_, std::uint64_t{sequence.period});
                  });
    if (!spanned) away_ = 0;
    for_each_slot(kinds, lane,
                  [&](const Sequence& sequence, const Slot& slot, bool outlived, bool spans) {
                    if (slot.planned() && always(sequence, slot, outlived, spans)) start_ = 1;
                  });
    period_ = start_ + longest + away_;
  }

  [[nodiscard]] std::uint64_t period() const noexcept { return period_; }
  [[nodiscard]] std::uint64_t birth(std::uint64_t tick, bool outlived) const noexcept {
    return start_ + (outlived || tick < release_ ? tick : tick + away_);
  }
  [[nodiscard]] std::uint64_t end(std::uint64_t tick, bool outlived) const noexcept {
    return start_ + (outlived || tick <= release_ ? tick : tick + away_);
  }
  [[nodiscard]] bool always(const Sequence& sequence, const Slot& slot, bool outlived,
                            bool spans) const noexcept {
    if (!spans && last(slot) <= sequence.period) return false;
    return (spans && outlived) || wrapped_end(sequence, slot, spans) > birth(slot.birth, outlived);
  }
  [[nodiscard]] std::uint64_t length(const Sequence& sequence, const Slot& slot, bool outlived,
                                     bool spans) const noexcept {
    const std::uint64_t from = birth(slot.birth, outlived);
    if (!spans && last(slot) <= sequence.period) return end(last(slot), outlived) - from;
    return period_ - from + wrapped_end(sequence, slot, spans);
  }

 private:
  static std::uint64_t last(const Slot& slot) noexcept {
    return std::uint64_t{slot.birth} + slot.length;
  }
  [[nodiscard]] std::uint64_t wrapped_end(const Sequence& sequence, const Slot& slot,
                                          bool spans) const noexcept {
    const std::uint64_t wrapped = last(slot) - std::min<std::uint64_t>(last(slot), sequence.period);
    return spans ? start_ + std::max(wrapped, release_) + away_ : end(wrapped, false);
  }
  template <class Visit>
  static void for_each_slot(const KindPlan& kinds, std::uint32_t lane, Visit&& visit) {
    for (std::size_t s = 0; s < kinds.plan.sequences.size(); ++s) {
      const Sequence& sequence = kinds.plan.sequences[s];
      if (sequence.lane != lane) continue;
      for (std::size_t k = 0; k < sequence.slots.size(); ++k)
        visit(sequence, sequence.slots[k], kinds.outlived[s], kinds.spans[s][k]);
    }
  }

  std::uint64_t release_ = 0, away_ = 0, start_ = 0, period_ = 0;
};

Plan placed(Plan plan, const Placement& placement, const PlaceOptions& options) {
  std::size_t next = 0;
  for (Sequence& sequence : plan.sequences) {
    for (Slot& slot : sequence.slots) {
      if (slot.planned()) slot.offset = placement.offsets[next++];
    }
  }
  plan.arena_bytes = placement.high_water_mark;
  plan.lower_bound = placement.lower_bound;
  plan.engine = placement.engine;
  plan.seed = options.seed;
  plan.plan_seconds = placement.seconds;
  return plan;
}

void refuse(const std::optional<std::string>& violation) {
  if (violation) throw Error(ErrorKind::kUsage, "the planner made an illegal plan: " + *violation);
}

}  // namespace

Problem make_problem(const KindPlan& kinds) {
  Problem problem = make_problem(kinds.plan);
  std::vector<KindTime> times;
  for (std::uint32_t lane = 0; lane < kinds.plan.lane_keys.size(); ++lane) {
    times.emplace_back(kinds, lane);
    problem.lanes[lane].period = times.back().period();
  }
  std::size_t next = 0;
  std::vector<std::uint32_t> roots(kinds.plan.lane_keys.size());
  for (std::uint32_t s = 0; s < kinds.plan.sequences.size(); ++s) {
    const Sequence& sequence = kinds.plan.sequences[s];
    if (sequence.parent < 0) roots[sequence.lane] = s;
    const KindTime& time = times[sequence.lane];
    const bool outlived = kinds.outlived[s];
    PlaceBranch& branch = problem.branches[s];
    // Where kinds of both sides part, that is no later than the release.
    if (sequence.parent >= 0) branch.fork = time.end(sequence.fork, outlived);
    branch.period = time.period();
    for (std::size_t k = 0; k < sequence.slots.size(); ++k) {
      const Slot& slot = sequence.slots[k];
      if (!slot.planned()) continue;
      Buffer& buffer = problem.buffers[next++];
      if (time.always(sequence, slot, outlived, kinds.spans[s][k])) {
        buffer.branch = roots[sequence.lane];
        buffer.birth = 0;
        buffer.length = time.period();
      } else {
        buffer.birth = time.birth(slot.birth, outlived);
        buffer.length = time.length(sequence, slot, outlived, kinds.spans[s][k]);
      }
    }
  }
  return problem;
}

Plan with_placement(Plan skeleton, const Step& step, const Placement& placement,
                    const PlaceOptions& options) {
  Plan plan = placed(std::move(skeleton), placement, options);
  refuse(verify(plan, step));
  return plan;
}

Plan with_placement(Plan skeleton, const Placement& placement, const PlaceOptions& options) {
  Plan plan = placed(std::move(skeleton), placement, options);
  refuse(verify(plan));
  return plan;
}

Plan plan_step(const Step& step, const Trace& trace, Bytes alignment, const PlaceOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Plan frame = skeleton(step, trace, alignment);
  const Placement placement = place_buffers(make_problem(frame), options);
  Plan plan = with_placement(std::move(frame), step, placement, options);
  plan.plan_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return plan;
}

Plan plan_kinds(std::span<const StepKind> kinds, const trace::Program& program, Bytes alignment,
                const PlaceOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  KindPlan frame = skeleton(kinds, program, alignment);
  const Placement placement = place_buffers(make_problem(frame), options);
  Plan plan = with_placement(std::move(frame.plan), placement, options);
  plan.plan_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return plan;
}

}  // namespace berth
