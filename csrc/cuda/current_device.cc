#include "csrc/cuda/current_device.h"

#include <optional>

namespace berth {

CudaCurrentDevice::CudaCurrentDevice(const CudaCalls& calls, CudaPrimary& primary) noexcept
    : calls_(calls) {
  status_ = calls_.cudaGetDevice(&before_);
  if (!status_.ok()) return;
  if (before_ == primary.index) {
    // The runtime names it before the thread has any context, which the driver's functions need.
    CUcontext current = nullptr;
    status_ = calls_.cuCtxGetCurrent(&current);
    if (!status_.ok() || current != nullptr) return;
  }
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

namespace {

// Where a thread's own mode could not be set again: what it is.
thread_local std::optional<cudaStreamCaptureMode> owed;

}  // namespace

CudaCaptureAside::CudaCaptureAside(const CudaCalls& calls) noexcept : calls_(calls) {
  status_ = calls_.cudaThreadExchangeStreamCaptureMode(&mode_);
  if (status_.ok() && owed) mode_ = *owed;
}

CudaCaptureAside::~CudaCaptureAside() {
  if (!status_.ok()) return;
  cudaStreamCaptureMode mode = mode_;
  owed.reset();
  // A thread that stays relaxed would not notice how it voids a capture: try again, now and later.
  if (!calls_.cudaThreadExchangeStreamCaptureMode(&mode).ok() &&
      !calls_.cudaThreadExchangeStreamCaptureMode(&mode).ok())
    owed = mode_;
}

}  // namespace berth
