#include "csrc/torch/step/captures.h"

#include "csrc/torch/step/tensors.h"

#include <atomic>

namespace berth::torch::step {

namespace {

std::atomic<CaptureProbe> offered{nullptr};

}  // namespace

void offer_capture_probe(CaptureProbe probe) noexcept {
  offered.store(probe, std::memory_order_release);
}

bool is_captured(c10::Device device) {
  const CaptureProbe probe = offered.load(std::memory_order_acquire);
  return probe != nullptr && !device.is_cpu() && probe(device);
}

bool is_captured(c10::ArrayRef<c10::IValue> values) {
  return offered.load(std::memory_order_acquire) != nullptr && is_captured(device_of(values));
}

}  // namespace berth::torch::step
