#include "csrc/torch/cuda/stream_captures.h"

#include "csrc/torch/step/captures.h"

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>

namespace berth::torch {

namespace {

using IsCapturing = cudaError_t (*)(cudaStream_t, cudaStreamCaptureStatus*);
std::atomic<IsCapturing> is_capturing{nullptr};

// In what the process has loaded, where a preloaded stand-in comes first.
IsCapturing find_is_capturing() {
  constexpr const char* kName = "cudaStreamIsCapturing";
  void* found = ::dlsym(RTLD_DEFAULT, kName);
  if (found == nullptr) {
    const std::string runtime = fmt::format("libcudart.so.{}", CUDART_VERSION / 1000);
    if (void* const library = ::dlopen(runtime.c_str(), RTLD_LAZY | RTLD_NOLOAD))
      found = ::dlsym(library, kName);
  }
  return reinterpret_cast<IsCapturing>(found);
}

bool is_captured(c10::Device device) {
  const c10::DeviceGuard on(device);  // whose legacy stream it may be
  cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
  const cudaError_t error = is_capturing.load(std::memory_order_acquire)(
      c10::cuda::getCurrentCUDAStream(device.index()), &captured);
  // The legacy stream while another one is: it may wait for nothing either.
  return error == cudaErrorStreamCaptureImplicit || captured != cudaStreamCaptureStatusNone;
}

}  // namespace

void offer_stream_captures() {
  const IsCapturing found = find_is_capturing();
  if (found == nullptr) return;  // no CUDA here: nothing can be captured
  is_capturing.store(found, std::memory_order_release);
  step::offer_capture_probe(is_captured);
}

}  // namespace berth::torch
