#include "csrc/cuda/current_device.h"

namespace berth {

CudaCurrentDevice::CudaCurrentDevice(const CudaCalls& calls, CudaPrimary& primary) noexcept
    : calls_(calls) {
  status_ = calls_.cudaGetDevice(&before_);
  if (!status_.ok() || before_ == primary.index) return;
  CUcontext context = primary.context.load(std::memory_order_acquire);
  if (context == nullptr) {
    CUdevice device = 0;
    status_ = calls_.cuDeviceGet(&device, primary.index);
    if (status_.ok()) status_ = calls_.cuDevicePrimaryCtxRetain(&context, device);
    if (!status_.ok()) return;
    // Threads that come at once retain it once each: none is given back, so that is one too many
    // for good, and no harm.
    primary.context.store(context, std::memory_order_release);
  }
  status_ = calls_.cuCtxPushCurrent(context);
  pushed_ = status_.ok();
}

CudaCurrentDevice::~CudaCurrentDevice() {
  if (!pushed_) return;
  CUcontext context = nullptr;
  if (!calls_.cuCtxPopCurrent(&context).ok()) (void)calls_.cudaSetDevice(before_);
}

CudaCaptureAside::CudaCaptureAside(const CudaCalls& calls) noexcept : calls_(calls) {
  status_ = calls_.cudaThreadExchangeStreamCaptureMode(&mode_);
}

CudaCaptureAside::~CudaCaptureAside() {
  if (!status_.ok()) return;
  // A thread that stayed relaxed could void a capture of its own later on: try again once.
  if (!calls_.cudaThreadExchangeStreamCaptureMode(&mode_).ok())
    (void)calls_.cudaThreadExchangeStreamCaptureMode(&mode_);
}

}  // namespace berth
