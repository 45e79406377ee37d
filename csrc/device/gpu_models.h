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
  // The most it can do, by its maker: for models of time, which no measurement stands behind.
  double fp32_tflops, half_tflops;  // of products; half: of 16-bit numbers, on tensor cores
  double gigabytes_per_second;      // of its memory
};

[[nodiscard]] const std::vector<GpuModel>& gpus();

// The GPUs that a name fits, by the parts of their short names or by their names: "H100-PCIe-80"
// and "RTX 3060 Ti" one, "H100" those of 80 GB, PCIe and NVL. Its last parts (the GB, too) may be
// left out; capitals, spaces and dashes do not matter. A whole short name fits that GPU only.
[[nodiscard]] std::vector<const GpuModel*> gpus_named(std::string_view name);

// The one that a name fits. Null where it fits none, or several.
[[nodiscard]] const GpuModel* find_gpu(std::string_view name);

// "A100-40, A100-80, .. or V100-32".
[[nodiscard]] std::string gpu_names(const std::vector<const GpuModel*>& list);
[[nodiscard]] std::string gpu_names();

}  // namespace berth
