#include "csrc/torch/cuda/stream_captures.h"

#include "csrc/cuda/calls.h"
#include "csrc/torch/step/captures.h"

#include <berth/error.h>

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>

namespace berth::torch {

namespace {

std::atomic<const CudaCalls*> calls{nullptr};  // never destroyed

bool is_captured(c10::Device device) {
  const c10::DeviceGuard on(device);  // whose legacy stream it may be
  cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
  const Status status =
      calls.load(std::memory_order_acquire)
          ->cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(device.index()), &captured);
  // The legacy stream while another one is: it may wait for nothing either.
  return status.number() == cudaErrorStreamCaptureImplicit ||
         captured != cudaStreamCaptureStatusNone;
}

}  // namespace

void offer_stream_captures() {
  if (calls.load(std::memory_order_acquire) != nullptr) return;
  try {
    calls.store(new CudaCalls, std::memory_order_release);
  } catch (const Error&) {  // no CUDA here: nothing can be captured
    return;
  }
  step::offer_capture_probe(is_captured);
}

}  // namespace berth::torch
