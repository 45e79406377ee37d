#pragma once

#include "csrc/torch/step/elapsed.h"
#include "csrc/torch/step/record.h"

#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace berth::torch::step {

// Times of calls in steps that run by a schedule, with the caches and heaps of the schedule. On
// devices events measure them, so that nothing waits. The times of a record are those of the step
// as written, one kernel at a time. Not thread-safe.
class KernelTimes {
 public:
  // The number of steps to measure: the least time of so many has no disturbance. And the number
  // of steps after which it gives up, if most calls were not measured by then.
  static constexpr int kSteps = 3, kMostSteps = 32;

  explicit KernelTimes(std::size_t calls) : ns_(calls, kNone) {}

  // One kernel from here on. Where nothing is timed, as in captured streams, it does nothing.
  class Kernel {
   public:
    // Of a call that takes these values.
    Kernel(KernelTimes& times, std::uint32_t call, c10::ArrayRef<c10::IValue> values);
    // It was asked for, and notes what it takes.
    void end();

   private:
    KernelTimes& times_;
    const std::uint32_t call_;
    c10::Device device_;
    std::optional<c10::Event> began_;
    Elapsed elapsed_;
  };

  // A step begins, whatever became of the one before.
  void begin_step() noexcept;
  // It has ended; waits for what was timed on devices.
  enum class Measured : std::uint8_t { kNotYet, kEnough, kGivenUp };
  Measured end_step();

  // Gives calls the least time that was noted of each, where one was, and then the median of those
  // that are alike.
  void give(std::vector<Call>& calls) const;

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  struct OnDevice {
    std::uint32_t call;
    c10::Event began, ended;
  };
  void note(std::uint32_t call, std::uint64_t ns) noexcept;

  std::vector<std::uint64_t> ns_;    // by call
  std::vector<OnDevice> on_device_;  // of this step
  std::size_t noted_ = 0;            // in this step
  int steps_ = 0, measured_ = 0;
};

// Each call takes the median time of those that are alike, so that no plan is made of what was slow
// or fast by chance.
void even_out_times(std::vector<Call>& calls);

}  // namespace berth::torch::step
