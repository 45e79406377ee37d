#include "bench/train/step_peak.h"

#include "csrc/torch/step/profilers.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace berth::bench {

class StepPeak::Memory final : public torch::step::MemoryListener {
 public:
  void reportMemoryUsage(void* block, std::int64_t bytes, std::size_t, std::size_t,
                         c10::Device) override {
    const std::lock_guard lock(mutex_);
    if (bytes > 0) {
      blocks_[block] = bytes;
      live_ += bytes;
      peak_ = std::max(peak_, live_);
      only_frees_ = false;
    } else if (const auto found = blocks_.find(block); found != blocks_.end()) {
      live_ -= found->second;
      blocks_.erase(found);
      if (only_frees_) base_ = peak_ = live_;
    }
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

  void begin_load() {
    const std::lock_guard lock(mutex_);
    before_load_ = live_;
  }
  void begin_step() {
    const std::lock_guard lock(mutex_);
    batch_ = live_ - before_load_;
    base_ = peak_ = live_;
    only_frees_ = true;
  }
  [[nodiscard]] std::int64_t bytes() {
    const std::lock_guard lock(mutex_);
    return batch_ + peak_ - base_;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, std::int64_t> blocks_;
  std::int64_t live_ = 0, before_load_ = 0, batch_ = 0;
  std::int64_t base_ = 0, peak_ = 0;  // of the step
  bool only_frees_ = false;           // since it began
};

StepPeak::StepPeak()
    : memory_(std::make_shared<Memory>()), guard_(c10::DebugInfoKind::PROFILER_STATE, memory_) {}
StepPeak::~StepPeak() = default;

void StepPeak::begin_load() { memory_->begin_load(); }
void StepPeak::begin_step() { memory_->begin_step(); }
std::int64_t StepPeak::bytes() const { return memory_->bytes(); }

}  // namespace berth::bench
