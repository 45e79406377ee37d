#pragma once

#include "csrc/cuda/calls.h"

#include <atomic>
#include <optional>

namespace berth {

// A GPU's primary context, made when first needed and kept: its memory lives in it.
struct CudaPrimary {
  int index = 0;
  std::atomic<CUcontext> context{nullptr};
};

// Makes a GPU the calling thread's current one while it lives, with a context of it.
//
// By pushing its context, not by cudaSetDevice(): setting the former device again would make a
// context on it where it had none.
class CudaCurrentDevice {
 public:
  CudaCurrentDevice(const CudaCalls& calls, CudaPrimary& primary) noexcept;
  ~CudaCurrentDevice();
  CudaCurrentDevice(const CudaCurrentDevice&) = delete;
  CudaCurrentDevice& operator=(const CudaCurrentDevice&) = delete;

  // Where this is no success the device is not current, and nothing is to be begun.
  [[nodiscard]] const Status& status() const noexcept { return status_; }

 private:
  const CudaCalls& calls_;
  Status status_;
  int before_ = 0;
  bool pushed_ = false;
};

// Lets the calling thread make calls that would void a capture which another thread, or this one,
// has open in the default mode: memory from the driver, queries of events.
class CudaCaptureAside {
 public:
  explicit CudaCaptureAside(const CudaCalls& calls) noexcept;
  ~CudaCaptureAside();
  CudaCaptureAside(const CudaCaptureAside&) = delete;
  CudaCaptureAside& operator=(const CudaCaptureAside&) = delete;

  [[nodiscard]] const Status& status() const noexcept { return status_; }

 private:
  const CudaCalls& calls_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  Status status_;
};

// What a call about memory needs of the calling thread: both of the above.
class CudaMemoryScope {
 public:
  CudaMemoryScope(const CudaCalls& calls, CudaPrimary& primary) noexcept
      : current_(calls, primary) {
    if (current_.status().ok()) aside_.emplace(calls);
  }

  [[nodiscard]] const Status& status() const noexcept {
    return aside_ ? aside_->status() : current_.status();
  }

 private:
  CudaCurrentDevice current_;
  std::optional<CudaCaptureAside> aside_;
};

}  // namespace berth
