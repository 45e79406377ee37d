#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>

#include <atomic>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace berth::torch::step {

// What stood on the key for an operator; nothing where calls passed it.
struct FormerKernel {
  c10::SafeKernelFunction kernel;
  bool fallback;  // libtorch's one for all operators
};
using Former = std::optional<FormerKernel>;

// Whether a call of it can be put on a stack.
[[nodiscard]] bool is_boxable(const c10::OperatorHandle& op);

// Boxed kernels of ours on one dispatch key, one for each operator that does something: where calls
// come by the key, `front` gets them.
//
// Not for views, which do nothing, unless libtorch has a kernel for them on that key: `front` lets
// those pass. Nor for operators that run as those that they consist of, nor
// the profiler's. Kernels stay to the end of the process: to take one away while another thread
// calls it is not safe, to add one is. O(operators) to register, some milliseconds.
class OperatorKernels {
 public:
  // Takes the operator's call: arguments lie on `stack`, where its results are to be left.
  using Front = void (*)(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack,
                         const Former& former);

  // `also` names an operator that is to be seen though it is a view; may be null. `name` is
  // libtorch's for who registered it.
  OperatorKernels(c10::DispatchKey key, Front front, const char* name, const char* also = nullptr)
      : key_(key), front_(front), name_(name), also_(also) {}
  OperatorKernels(const OperatorKernels&) = delete;
  OperatorKernels& operator=(const OperatorKernels&) = delete;

  // For those that have none yet. Not thread-safe.
  void register_new();
  // Whether operators were loaded since. Thread-safe.
  [[nodiscard]] bool behind() const noexcept {
    return operators_came_.load(std::memory_order_relaxed);
  }

 private:
  const c10::DispatchKey key_;
  const Front front_;
  const char* const name_;
  const char* const also_;
  std::unordered_set<std::string> operators_;
  std::vector<c10::RegistrationHandleRAII> handles_;
  std::atomic<bool> operators_came_{true};  // since the last look at all of them
};

}  // namespace berth::torch::step
