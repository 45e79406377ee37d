#pragma once

namespace berth::torch::step {

// Parts of a backward pass that are neither libtorch's nor Python's: torch::autograd::Function of
// the program's own libraries. They read gradients and saved tensors by pointers, and no operator
// shows it. Where one begins on a thread of a step, the step goes on as written.

// Looks for them from now on, to the end of the process. Until then nobody pays for it.
// Thread-safe.
void watch_backward_nodes();
// The same, where an operator that is not libtorch's has a kernel for autograd. O(operators).
void watch_backward_nodes_of_operators();

}  // namespace berth::torch::step
