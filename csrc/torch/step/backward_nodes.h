#pragma once

#include <cstdint>

namespace berth::torch::step {

// Parts of a backward pass that are neither libtorch's nor Python's: torch::autograd::Function of
// the program's own libraries. They read gradients and saved tensors by pointers, and no operator
// shows it. Where one begins, the step goes on as written.

// Looks for them from the next tap on. Until then nobody pays for it. Thread-safe.
void watch_backward_nodes() noexcept;
// The same, where an operator that is not libtorch's has a kernel for autograd. O(operators).
void watch_backward_nodes_of_operators();

// While it stands, this thread looks for them, and so do the threads of its backward passes.
class BackwardNodes {
 public:
  BackwardNodes();
  ~BackwardNodes();
  BackwardNodes(const BackwardNodes&) = delete;
  BackwardNodes& operator=(const BackwardNodes&) = delete;

 private:
  std::uint64_t handle_ = 0;  // 0: nobody looks
};

}  // namespace berth::torch::step
