#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>

namespace berth::bench {

// Most bytes that a step holds beside what is there between steps, as libtorch's allocator counts
// what this thread and its backward ask for while it stands. Gradients of the step before are there
// only until the step lets go of them, so a first step has to run that it sees. For the CPU.
class StepPeak {
 public:
  StepPeak();
  ~StepPeak();
  // Before the step's batch is loaded, and when it is there.
  void begin_load();
  void begin_step();
  [[nodiscard]] std::int64_t bytes() const;

 private:
  class Memory;
  std::shared_ptr<Memory> memory_;
  c10::DebugInfoGuard guard_;
};

}  // namespace berth::bench
