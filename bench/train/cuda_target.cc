#include "bench/train/target.h"

#include <berth/torch_cuda.h>

#include <c10/cuda/CUDACachingAllocator.h>

namespace berth::bench {

namespace {

// Of the GPU's own, which counts from the start.
std::int64_t device_calls_before = 0;
std::uint64_t driver_calls_before = 0;

c10::CachingDeviceAllocator::DeviceStats device_stats() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(0);
}

}  // namespace

const char* const kTarget = "cuda";

void install() { berth::torch::install_cuda(); }

nlohmann::json statistics() {
  return berth::torch::cuda_installed()
             ? nlohmann::json::parse(berth::torch::cuda_stats().to_json())
             : nlohmann::json();
}

void reset_memory() {
  const auto stats = device_stats();
  device_calls_before = stats.num_device_alloc + stats.num_device_free;
  driver_calls_before = berth::torch::cuda_stats().driver_calls;
}

nlohmann::json memory() {
  const auto stats = device_stats();
  return {
      {"allocator", c10::cuda::CUDACachingAllocator::name()},
      {"allocated_peak_bytes", stats.allocated_bytes[0].peak},
      {"requested_peak_bytes", stats.requested_bytes[0].peak},
      {"reserved_peak_bytes", stats.reserved_bytes[0].peak},
      // That bring or return memory.
      {"memory_calls", stats.num_device_alloc + stats.num_device_free - device_calls_before},
      // Of any kind, by berth.
      {"driver_calls", berth::torch::cuda_stats().driver_calls - driver_calls_before},
  };
}

}  // namespace berth::bench
