#include "csrc/place/plan_step.h"

#include "csrc/core/check.h"
#include "csrc/plan/build.h"
#include "csrc/plan/verify.h"

#include <chrono>
#include <utility>

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

Plan with_placement(Plan skeleton, const Step& step, const Placement& placement,
                    const PlaceOptions& options) {
  Plan plan = std::move(skeleton);
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
  if (const auto violation = verify(plan, step)) {
    throw Error(ErrorKind::kUsage, "the planner made an illegal plan: " + *violation);
  }
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

}  // namespace berth
