// Of libberth_torch_cuda_allocator.so.
#include "csrc/core/check.h"
#include "csrc/torch/adapted.h"
#include "csrc/torch/cuda/cuda_allocator.h"
#include "csrc/torch/cuda/cudnn/convolution_choice.h"
#include "csrc/torch/cuda/offered_streams.h"

#include <berth/torch_cuda.h>

#include <limits>

namespace berth::torch {
namespace {

class AdaptedCuda final : public Adapted {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "CUDA"; }
  void install(const Config& config) override { install_cuda(config); }
  [[nodiscard]] bool installed() const noexcept override { return cuda_installed(); }
  [[nodiscard]] Stats stats(int device) override { return cuda_stats(device); }
  [[nodiscard]] Allocator& allocator(int device) override {
    CudaAllocator* const here = CudaAllocator::get();
    BERTH_CHECK(here != nullptr && !here->forked(), kUsage,
                "berth is not installed on CUDA in this process");
    BERTH_CHECK(device >= 0 && device <= std::numeric_limits<c10::DeviceIndex>::max(), kUsage,
                "there is no GPU {}", device);
    return here->gpu(static_cast<c10::DeviceIndex>(device)).planned();
  }
  Bytes release(int device, bool keep_contents) override {
    return cuda_release_memory(device, keep_contents);
  }
  Bytes resume(int device) override { return cuda_resume_memory(device); }
  void shut_down() noexcept override {
    CudaAllocator* const here = CudaAllocator::get();
    if (here == nullptr || here->forked()) return;
    for (Gpu* const gpu : here->gpus()) gpu->shut_down();
  }
  void serve_step_programs() override {
    cudnn::offer_convolutions();
    offer_streams();
  }
  [[nodiscard]] c10::Device device(int index) const noexcept override {
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
  }
};

}  // namespace

Adapted& adapted() noexcept {
  static constinit AdaptedCuda cuda;
  return cuda;
}

}  // namespace berth::torch
