#include "csrc/torch/step/kernel_cost.h"

#include <algorithm>

namespace berth::torch::step {

class KernelCost::Memory final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* block, std::int64_t bytes, std::size_t, std::size_t,
                         c10::Device) override {
    if (bytes > 0) {
      blocks_[block] = static_cast<Bytes>(bytes);
      held += static_cast<Bytes>(bytes);
      peak = std::max(peak, held);
    } else if (const auto found = blocks_.find(block); found != blocks_.end()) {
      // What was there before the kernel and is freed in it is not its own.
      held -= found->second;
      blocks_.erase(found);
    }
  }
  void reportOutOfMemory(std::int64_t, std::size_t, std::size_t, c10::Device) override {}
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

  Bytes held = 0, peak = 0;

 private:
  std::unordered_map<void*, Bytes> blocks_;
};

KernelCost::KernelCost()
    : memory_(std::make_shared<Memory>()), guard_(c10::DebugInfoKind::PROFILER_STATE, memory_) {}

Bytes KernelCost::peak() const noexcept { return memory_->peak; }
Bytes KernelCost::held() const noexcept { return memory_->held; }

}  // namespace berth::torch::step
