#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>

namespace berth::torch::step {

// Who is told of operators instead of their kernels.
class OperatorListener {
 public:
  virtual ~OperatorListener() = default;
  // An operator of the step is called: its arguments lie on `stack`, from where the listener takes
  // them and where it leaves the results, by run_kernel() or in its own way. `keys` are the call's.
  // From any thread on which the step runs, autograd's among them. What it throws the program sees
  // as the operator's error.
  virtual void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) = 0;
  // How many calls so far that must not be made twice: that write, or draw numbers.
  [[nodiscard]] virtual std::uint64_t effects() = 0;
};

// Runs the operator's kernel. The operators inside of it are not told. What it takes is there and
// stays meanwhile (see spills.h), in all three.
void run_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack);
// Has Python dispatch a call whose tensors are subclasses of its own; the operators that it calls
// are told.
void run_in_python(const c10::OperatorHandle& op, c10::Stack* stack);
// Runs the kernel, and the operators inside are told.
void run_kernel_told(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack);

// While it stands, its thread, and the threads that autograd runs this thread's backward on, tell
// `listener` of every operator just below autograd: forward, backward, accumulation of gradients,
// optimizers; not of views, which do nothing. One at a time in a process.
//
// How: a boxed kernel for each operator on the dispatch key ZeroTensor, which lies right below
// autograd and which no ordinary tensor carries; the key is put into the thread's set, which
// autograd hands on. What stood on the key before serves calls whose tensors do carry it. The
// kernels are registered at the first tap, which takes some milliseconds, and for operators that
// are loaded later at the next one. They cost nothing on threads without a tap.
// A process that is forked in a step has none: there everything runs as it is.
class Tap {
 public:
  // Requires: active() is false.
  explicit Tap(OperatorListener& listener);
  ~Tap();
  Tap(const Tap&) = delete;
  Tap& operator=(const Tap&) = delete;

  // From now on the thread tells `between` where none stands: it tells for the rest of the process,
  // and so do the threads that have had one.
  static void stay(OperatorListener& between);

  // Whether one stands, on any thread.
  [[nodiscard]] static bool active() noexcept;
  // Who is told; null where nobody is.
  [[nodiscard]] static OperatorListener* listener() noexcept;
};

// The key of the tap: excluded while kernels run.
inline constexpr c10::DispatchKey kTapKey = c10::DispatchKey::ZeroTensor;
// That of composite operators: see composites.h.
inline constexpr c10::DispatchKey kCompositeKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

}  // namespace berth::torch::step
