#include "csrc/torch/cuda/offered_streams.h"

#include "csrc/torch/step/captures.h"
#include "csrc/torch/step/kernel_cost.h"

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>

namespace berth::torch {

namespace {

using IsCapturing = cudaError_t (*)(cudaStream_t, cudaStreamCaptureStatus*);
using Synchronize = cudaError_t (*)(cudaStream_t);
std::atomic<IsCapturing> is_capturing{nullptr};
std::atomic<Synchronize> synchronize{nullptr};

// In what the process has loaded, where a preloaded stand-in comes first.
void* find(const char* name) {
  void* found = ::dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) {
    const std::string runtime = fmt::format("libcudart.so.{}", CUDART_VERSION / 1000);
    if (void* const library = ::dlopen(runtime.c_str(), RTLD_LAZY | RTLD_NOLOAD))
      found = ::dlsym(library, name);
  }
  return found;
}

bool is_captured(c10::Device device) {
  const c10::DeviceGuard on(device);  // whose legacy stream it may be
  cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
  const cudaError_t error = is_capturing.load(std::memory_order_acquire)(
      c10::cuda::getCurrentCUDAStream(device.index()), &captured);
  // The legacy stream while another one is: it may wait for nothing either.
  return error == cudaErrorStreamCaptureImplicit || captured != cudaStreamCaptureStatusNone;
}

bool wait_for(const c10::Stream& stream) {
  const c10::DeviceGuard on(stream.device());
  return synchronize.load(std::memory_order_acquire)(c10::cuda::CUDAStream(stream)) == cudaSuccess;
}

}  // namespace

void offer_streams() {
  const auto capturing = reinterpret_cast<IsCapturing>(find("cudaStreamIsCapturing"));
  if (capturing == nullptr) return;  // no CUDA here: nothing can be captured
  is_capturing.store(capturing, std::memory_order_release);
  step::offer_capture_probe(is_captured);
  const auto waits = reinterpret_cast<Synchronize>(find("cudaStreamSynchronize"));
  if (waits == nullptr) return;
  synchronize.store(waits, std::memory_order_release);
  step::offer_stream_wait(wait_for);
}

}  // namespace berth::torch
