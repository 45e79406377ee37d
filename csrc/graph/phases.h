#pragma once

#include "csrc/graph/step_graph.h"

#include <vector>

// The two rules for phases, both over calls whose numbers are the order of the run.
namespace berth::graph {

// Of a recording: sets the phase of each operator, one for each call.
//
// Backward is what the recording says. Optimizer is what reads or writes gradients and the
// optimizer's state, writes weights, or reads what the optimizer made for itself. Loss is the
// operator whose gradient a pass takes first, and what follows it up to the pass. An operator whose
// storages have no role goes with the first that reads a result of it, else with the one before.
// All else is forward. So it may come after the optimizer: the host looks at the loss. O(reads +
// writes).
void find_phases_by_role(Graph& graph, const std::vector<StepCall>& calls);

// Of a step program, which knows no roles: the phase of each call.
//
// Backward is what ran in it. Optimizer is what came after the last of that and needs something of
// it. What could as well have run before (counts of steps) is no part of it: all else is forward.
// O(operands).
[[nodiscard]] std::vector<Phase> phases_by_use(const std::vector<StepCall>& calls,
                                               std::size_t storages);

}  // namespace berth::graph
