#pragma once

#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"
#include "csrc/schedule/offload/offload_plan.h"
#include "csrc/schedule/offload/problem.h"
#include "csrc/schedule/offload/timeline.h"

#include <vector>

namespace berth::schedule::offload {

// The steps of a plan for the problem that from_graph() made of `graph` with the same order and
// choice. Each reload is a step right before its trigger, or after its copy to the host. A copy to
// the host is a step after the last reader before the border; it may begin with that reader, since
// both only read. What is recomputed has a buffer of its own, and what is made beside it for
// nothing is dropped at once. Peak and time are the outcome's; the graph's hash, the budget, the
// engine and the seed are left to the caller.
//
// Throws Error(kUsage) where graph and problem do not belong together, or plan and problem.
// O((operators + reads + writes) log of them).
[[nodiscard]] graph::Schedule to_schedule(const graph::Graph& graph, const Problem& problem,
                                          const OffloadPlan& plan, const Outcome& outcome,
                                          const std::vector<graph::OperatorId>& order = {},
                                          const std::vector<std::uint32_t>& choice = {});

}  // namespace berth::schedule::offload
