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

// Ticks of one lane with kinds, in the time of the problem, in which the releases of all kinds are
// at one tick (see KindPlan).
//
// What lives into later steps to its own birth in that time, or beyond, is there always: it is born
// at tick 0 on all paths, which nothing else is.
class KindTime {
 public:
  KindTime(const KindPlan& kinds, std::uint32_t lane) : latest_(kinds.latest[lane]) {
    bool any = false;
    for (std::size_t s = 0; s < kinds.plan.sequences.size(); ++s) {
      const Sequence& sequence = kinds.plan.sequences[s];
      if (sequence.lane != lane) continue;
      period_ = std::max(period_, end(sequence.period, kinds.releases[s]));
      for (std::size_t k = 0; k < sequence.slots.size(); ++k) {
        const Slot& slot = sequence.slots[k];
        any |= slot.planned() && always(slot, kinds.releases[s], kinds.ends[s][k]);
      }
    }
    start_ = any ? 1 : 0;
    period_ += start_;
  }

  [[nodiscard]] std::uint64_t period() const noexcept { return period_; }
  // Of what begins, or ends, before this tick of a kind with this release.
  [[nodiscard]] std::uint64_t birth(std::uint64_t tick, std::uint64_t release) const noexcept {
    return start_ + (tick < release ? tick : latest_ + (tick - release));
  }
  [[nodiscard]] std::uint64_t end(std::uint64_t tick, std::uint64_t release) const noexcept {
    return start_ + (tick <= release ? tick : latest_ + (tick - release));
  }
  [[nodiscard]] bool always(const Slot& slot, std::uint64_t release,
                            std::optional<std::uint64_t> end) const noexcept {
    // mutant: kinds-always
    return end && start_ + *end > birth(slot.birth, release);
  }
  // `end`: see KindPlan::ends.
  [[nodiscard]] std::uint64_t length(const Slot& slot, std::uint64_t release,
                                     std::optional<std::uint64_t> end) const noexcept {
    const std::uint64_t from = birth(slot.birth, release);
    if (end) return period_ - from + (*end == 0 ? 0 : start_ + *end);
    return this->end(std::uint64_t{slot.birth} + slot.length, release) - from;
  }

 private:
  std::uint64_t latest_ = 0, start_ = 0, period_ = 0;
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
    const std::uint32_t release = kinds.releases[s];
    PlaceBranch& branch = problem.branches[s];
    if (sequence.parent >= 0) branch.fork = time.end(sequence.fork, release);
    branch.period = time.period();
    for (std::size_t k = 0; k < sequence.slots.size(); ++k) {
      const Slot& slot = sequence.slots[k];
      if (!slot.planned()) continue;
      Buffer& buffer = problem.buffers[next++];
      if (time.always(slot, release, kinds.ends[s][k])) {
        buffer.branch = roots[sequence.lane];
        buffer.birth = 0;
        buffer.length = time.period();
      } else {
        buffer.birth = time.birth(slot.birth, release);
        buffer.length = time.length(slot, release, kinds.ends[s][k]);
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
