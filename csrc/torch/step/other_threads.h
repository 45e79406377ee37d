#pragma once

#include "csrc/torch/step/tap.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>

namespace berth::torch::step {

// Operators of threads that run no part of a step, and of the program's thread between steps.
//
// How: each operator has a boxed kernel on the dispatch key BackendSelect, which all threads have.
// A thread under a tap, or one that runs a schedule, passes it. On another thread the listener
// hears of the call before it runs, and where spills are on its operands have their bytes and keep
// them meanwhile (see spills.h). Views and calls within calls are not told of.
//
// Composite operators lie above that key (see composites.h). They are seen on threads that have
// called see_composites(), or another operator before.
//
// Kernels stay to the end of the process. They cost a thread without a tap O(arguments) an
// operator, some 100 ns.
class OtherThreads {
 public:
  // From now on operators of all threads are seen: O(operators), some milliseconds. Thread-safe.
  static void see();
  // For the calling thread, to its end.
  static void see_composites() noexcept;
  // Runs a composite operator on a thread without a tap: as any, but that those inside are told of,
  // too.
  static void run_composite(const c10::OperatorHandle& op, c10::Stack* stack,
                            const std::function<void(c10::Stack*)>& run);

  // `listener` hears of the calls, on the threads that make them, also of operators that were
  // loaded since see(). One at a time in a process.
  explicit OtherThreads(OperatorListener& listener);
  // Waits for the threads that the listener holds up.
  ~OtherThreads();
  OtherThreads(const OtherThreads&) = delete;
  OtherThreads& operator=(const OtherThreads&) = delete;
};

}  // namespace berth::torch::step
