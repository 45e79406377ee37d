#pragma once

#include "csrc/torch/step/record.h"

#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace berth::torch::step {

// What the step before a step left, and how many calls the step had made when each of it went:
// gradients, for example, until the step zeroes them. Holds storages weakly. Not thread-safe.
class LeftBehind {
 public:
  LeftBehind() = default;
  // For the run's step with this number. Empty where `before`, which may be null, is not the record
  // of the step before it.
  LeftBehind(const StepRecord* before, std::uint64_t step);

  // The step has made so many calls. O(what is there still).
  void note(std::uint32_t calls);
  [[nodiscard]] bool any() const noexcept { return !there_.empty(); }
  // What went so far. It is empty after that.
  [[nodiscard]] std::vector<StepRecord::Left> take();

 private:
  // By the number that it has in the step that left it.
  std::vector<std::pair<StorageNumber, c10::weak_intrusive_ptr<c10::StorageImpl>>> there_;
  std::vector<StepRecord::Left> gone_;
};

}  // namespace berth::torch::step
