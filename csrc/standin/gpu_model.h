#pragma once

#include "csrc/standin/abi.h"

#include <string>
#include <string_view>
#include <vector>

namespace berth::standin {

// One model of a real GPU, as its driver reports it. Sizes are bytes.
struct GpuModel {
  std::string_view short_name;  // H100-80
  std::string_view name;        // NVIDIA H100 80GB HBM3
  std::size_t total_memory;
  int major, minor;  // compute capability
  int multiprocessors;
  int threads_per_multiprocessor;
  int blocks_per_multiprocessor;
  std::size_t shared_per_multiprocessor;
  std::size_t shared_per_block_optin;
  int l2_cache;
  int memory_bus_bits;
  bool peer_access;  // between two of them in one machine
};

// What a context takes before the first allocation of the program.
inline constexpr std::size_t kContextBytes = std::size_t{512} << 20;

const std::vector<GpuModel>& gpus();

// The GPU of a short name, or null.
const GpuModel* find_gpu(std::string_view short_name);

// As cudaGetDeviceProperties fills it, for device number `device` with `total_memory` bytes.
DeviceProperties properties_of(const GpuModel& gpu, int device, std::size_t total_memory);

// As cudaDeviceGetAttribute and cuDeviceGetAttribute answer; 0 for an attribute of which the
// stand-in has no opinion.
int attribute_of(const GpuModel& gpu, int device, int attribute);

}  // namespace berth::standin
