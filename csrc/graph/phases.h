#pragma once

#include "csrc/graph/graph.h"

#include <vector>

namespace berth::graph {

// What a recording says of an operator's part of the step.
struct PhaseHint {
  bool backward = false;      // runs in a pass of autograd's engine
  bool in_optimizer = false;  // within a range that an optimizer made around its step
};

// Sets the phase of each operator; numbers are the order of the run.
//
// Backward is what the recording says. Optimizer is what reads or writes gradients and the
// optimizer's state, writes weights, or reads what the optimizer made for itself. Loss is the
// operator whose gradient a pass takes first, and what follows it up to the pass. An operator whose
// storages have no role goes with the first that reads a result of it, else with the one before.
// All else is forward. So it may come after the optimizer: the host looks at the loss. O(reads +
// writes).
void find_phases(Graph& graph, const std::vector<PhaseHint>& hints);

}  // namespace berth::graph
