#pragma once

#include <c10/util/Exception.h>

namespace berth::torch::step {

// Whether kernels of the calling thread warn while it stands. Warnings go on to who had them
// before: Python makes exceptions of them where the program says so, which a kernel that a schedule
// runs later would not reach.
class KernelWarnings : private c10::WarningHandler {
 public:
  KernelWarnings() : before_(c10::WarningUtils::get_warning_handler()), guard_(this) {}
  KernelWarnings(const KernelWarnings&) = delete;
  KernelWarnings& operator=(const KernelWarnings&) = delete;
  [[nodiscard]] bool any() const noexcept { return any_; }

 private:
  void process(const c10::Warning& warning) override {
    any_ = true;
    before_->process(warning);
  }

  c10::WarningHandler* const before_;
  bool any_ = false;
  const c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace berth::torch::step
