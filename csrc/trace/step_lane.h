#pragma once

#include "csrc/trace/run_log.h"
#include "csrc/trace/step_cut.h"

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace berth::trace {

// One lane of a run that repeats with the step: its period, and how long each of its requests
// lives. Positions are indices into the lane's requests.
class StepLaneLog {
 public:
  struct Slot {
    static constexpr std::uint64_t kForEver = ~std::uint64_t{0};
    Bytes bytes = 0;
    // Ticks, from 1; beyond the period for what outlives it, kForEver where no end was seen.
    std::uint64_t length = 0;
  };

  // Nothing where the lane makes no requests in the cut, or others from repeat to repeat.
  [[nodiscard]] static std::optional<StepLaneLog> make(const LaneLog& log, LaneId lane,
                                                       const StepCut& cut);

  [[nodiscard]] LaneId lane() const noexcept { return lane_; }
  [[nodiscard]] std::uint32_t period() const noexcept { return period_; }
  [[nodiscard]] std::span<const Slot> slots() const noexcept { return slots_; }

  // The first request of a repeat; begin_of(repeats) is past the last.
  [[nodiscard]] std::uint32_t begin_of(std::uint32_t repeat) const noexcept {
    return begin_ + repeat * period_;
  }
  // The repeat's ticks of the trace, half-open; the same for all lanes.
  [[nodiscard]] std::pair<Tick, Tick> ticks_of(std::uint32_t repeat) const noexcept {
    return {bounds_[repeat], bounds_[repeat + 1]};
  }

  // The largest sum of bytes alive at one tick, what outlives the period at its whole length.
  [[nodiscard]] Bytes peak() const;

 private:
  LaneId lane_ = 0;
  std::uint32_t begin_ = 0;
  std::uint32_t period_ = 0;
  std::vector<Slot> slots_;
  std::vector<Tick> bounds_;  // of repeats
};

}  // namespace berth::trace
