#include "csrc/torch/cuda/stream_captures.h"

#include "csrc/cuda/calls.h"
#include "csrc/torch/step/captures.h"

#include <c10/cuda/CUDAStream.h>

namespace berth::torch {

void offer_stream_captures() {
  step::offer_capture_probe([](c10::Device device) {
    static const auto* const calls = new CudaCalls;
    cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
    const Status status =
        calls->cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(device.index()), &captured);
    // The legacy stream while another one is: it may wait for nothing either.
    return status.number() == cudaErrorStreamCaptureImplicit ||
           captured != cudaStreamCaptureStatusNone;
  });
}

}  // namespace berth::torch
