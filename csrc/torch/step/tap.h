#pragma once

#include "csrc/torch/step/autocast.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <functional>

namespace berth::torch::step {

// Receives the calls of a step's operators in place of their kernels.
class OperatorListener {
 public:
  virtual ~OperatorListener() = default;
  // The step calls an operator. The listener replaces the arguments on `stack` by the results, by
  // run_kernel() or in its own way. `keys` are those of the call. Called from any thread on which
  // the step runs, autograd's included. An exception is the operator's error to the program.
  virtual void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) = 0;
  // A thread that runs no part of the step is about to call an operator; its arguments are the last
  // ones of `stack` (see other_threads.h). What the step has of them is to be as the program sees
  // it.
  virtual void called_elsewhere(const c10::OperatorHandle& op, const c10::Stack& stack) {
    (void)op, (void)stack;
  }
  // A point between calls, for had_effects().
  [[nodiscard]] virtual std::uint64_t point() = 0;
  // Whether calls since then must not run twice: they draw random numbers, or write what was there
  // before.
  [[nodiscard]] virtual bool had_effects(std::uint64_t since) = 0;
};

// Runs the operator's kernel. The listener does not receive the operators inside. In all three
// functions the operands have their bytes, and keep them meanwhile (see spills.h).
void run_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack);
// Lets Python dispatch a call whose tensors are subclasses in Python. The listener receives the
// operators inside. A composite call goes there by libtorch's own way, which Python relies on.
void run_in_python(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack);
// Runs a call whose kernel may use tensors that are no argument: operators inside find their bytes,
// too. No listener receives these.
void run_kernel_of_others(const std::function<void()>& call);
// Calls an operator below autograd. Autocast, which is off, is as given for the operators inside.
void run_under_autocast(Autocast autocast, const c10::OperatorHandle& op, c10::Stack* stack);
// Runs the kernel. The listener receives the operators inside.
void run_kernel_told(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack);

// Passes every operator of a step to `listener`, just below autograd: forward, backward,
// accumulation of gradients, optimizers. It covers its thread, and the threads on which autograd
// runs this thread's backward. Views do nothing and are not passed. One at a time in a process.
//
// How: each operator has a boxed kernel on the dispatch key ZeroTensor. The key lies right below
// autograd, and no ordinary tensor carries it. The tap adds it to the thread's set, which autograd
// hands on. Kernels that were on the key before serve calls whose tensors carry it. The first tap
// registers the kernels, in some milliseconds. Operators that are loaded later get theirs with the
// next tap, or with the next call that a tap sees. They cost nothing on threads without a tap. A
// process that is forked in a step has no tap: there everything runs as it is.
class Tap {
 public:
  // Requires: active() is false.
  explicit Tap(OperatorListener& listener);
  ~Tap();
  Tap(const Tap&) = delete;
  Tap& operator=(const Tap&) = delete;

  // Registers the kernels, where that was not done. Thread-safe.
  static void prepare();
  // From now on `between` receives the operators of this thread, and of threads that had a tap,
  // while there is none. It stays so to the end of the process.
  static void stay(OperatorListener& between);

  // Whether there is one, on any thread.
  [[nodiscard]] static bool active() noexcept;
  // Who receives operators; null where nobody does.
  [[nodiscard]] static OperatorListener* listener() noexcept;
};

// The key of the tap: excluded while kernels run.
inline constexpr c10::DispatchKey kTapKey = c10::DispatchKey::ZeroTensor;
// That of composite operators: see composites.h.
inline constexpr c10::DispatchKey kCompositeKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

}  // namespace berth::torch::step
