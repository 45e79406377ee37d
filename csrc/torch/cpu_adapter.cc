// Of libberth_torch_cpu_allocator.so.
#include "csrc/core/check.h"
#include "csrc/torch/adapted.h"
#include "csrc/torch/installation.h"

#include <berth/torch.h>

namespace berth::torch {
namespace {

class AdaptedCpu final : public Adapted {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "the CPU"; }
  void install(const Config& config) override { torch::install(config); }
  [[nodiscard]] bool installed() const noexcept override { return torch::installed(); }
  [[nodiscard]] Stats stats(int) override { return torch::stats(); }
  [[nodiscard]] Allocator& allocator(int) override {
    Installation* const here = Installation::get();
    BERTH_CHECK(here != nullptr && !here->forked(), kUsage,
                "berth is not installed on the CPU of this process");
    return here->allocator();
  }
  Bytes release(int, bool keep_contents) override {
    BERTH_CHECK(!keep_contents, kUsage,
                "the CPU's tensors are in host memory already: release memory without contents");
    return release_memory();
  }
  Bytes resume(int) override { return resume_memory(); }
  void shut_down() noexcept override {
    Installation* const here = Installation::get();
    if (here != nullptr && !here->forked()) here->allocator().shut_down();
  }
  [[nodiscard]] c10::Device device(int) const noexcept override { return c10::kCPU; }
};

}  // namespace

Adapted& adapted() noexcept {
  static constinit AdaptedCpu cpu;
  return cpu;
}

}  // namespace berth::torch
