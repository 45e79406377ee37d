#include "csrc/torch/step/left_behind.h"

namespace berth::torch::step {

LeftBehind::LeftBehind(const StepRecord* before, std::uint64_t step) {
  if (before == nullptr || before->step + 1 != step) return;
  for (StorageNumber number = 0; number < before->storages.size(); ++number)
    if (before->storages[number].outlives && !before->storages[number].of_body() &&
        !before->held[number].expired())
      there_.emplace_back(number, before->held[number]);
}

void LeftBehind::note(std::uint32_t calls) {
  std::erase_if(there_, [&](const auto& one) {
    if (!one.second.expired()) return false;
    gone_.push_back({one.first, calls});
    return true;
  });
}

std::vector<StepRecord::Left> LeftBehind::take() {
  there_.clear();
  return std::exchange(gone_, {});
}

}  // namespace berth::torch::step
