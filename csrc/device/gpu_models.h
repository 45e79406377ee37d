#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace berth {

// One model of a real GPU, as its driver reports it, for what runs without one. Sizes are bytes.
struct GpuModel {
  std::string_view short_name;  // H100-80
  std::string_view name;        // NVIDIA H100 80GB HBM3
  std::size_t total_memory;
  // What a process takes before it allocates: the context, and the kernels and libraries that
  // libtorch loads for a training step. Estimates; it depends on driver and program as well.
  std::size_t context_bytes;
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

[[nodiscard]] const std::vector<GpuModel>& gpus();

// The GPU of a short name, in capitals or not; its last part (the GB) may be left out where one row
// has the rest. Null where no row, or more than one, has that name.
[[nodiscard]] const GpuModel* find_gpu(std::string_view name);

// "A100-40, A100-80, .. or V100-32".
[[nodiscard]] std::string gpu_names();

}  // namespace berth
