#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

// Streams that are being captured into graphs. A step must not wait there, or time kernels. Only a
// device's library knows them, so it registers a probe.
namespace berth::torch::step {

// Whether the calling thread's current stream on the device is being captured.
using CaptureProbe = bool (*)(c10::Device device);

// Registers the probe. It lives as long as the process. Thread-safe.
void offer_capture_probe(CaptureProbe probe) noexcept;

// Whether work that this thread queues on the device now would be captured.
[[nodiscard]] bool is_captured(c10::Device device);
// Whether a kernel with these arguments would be captured. False where all are on the CPU, or where
// there is no probe. O(values).
[[nodiscard]] bool is_captured(c10::ArrayRef<c10::IValue> values);

}  // namespace berth::torch::step
