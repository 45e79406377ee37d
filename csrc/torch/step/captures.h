#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

// Streams that are being captured into graphs, of which only a device's library can tell: nothing
// may be waited for there, nor timed.
namespace berth::torch::step {

// Whether the calling thread's current stream on the device is.
using CaptureProbe = bool (*)(c10::Device device);

// From now on the probe is asked about devices. Lives for ever. Thread-safe.
void offer_capture_probe(CaptureProbe probe) noexcept;

// Whether work on the device would be captured that this thread asks for now.
[[nodiscard]] bool is_captured(c10::Device device);
// Whether a kernel that takes these values would be captured. Never where all are the CPU's, nor
// where no probe was offered. O(values).
[[nodiscard]] bool is_captured(c10::ArrayRef<c10::IValue> values);

}  // namespace berth::torch::step
