#include "csrc/device/gpu_models.h"

#include <algorithm>
#include <cctype>

namespace berth {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr int kL2MiB = 1024 * 1024;

bool same(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::toupper(x) == std::toupper(y); });
}

}  // namespace

const std::vector<GpuModel>& gpus() {
  // Totals: what deviceQuery or torch print on such machines; a driver's other version may take
  // some 1 % more or less. Contexts: on an RTX 3090 256 MiB before the first kernel (torch 2.7,
  // invoke-ai/InvokeAI#9413), some 300 MiB with a first model (pytorch/pytorch#107667); the driver
  // keeps memory for each multiprocessor, so the others go by their number, and all have 128 MiB
  // for the kernels and handles of cuBLAS and cuDNN.
  static const auto& table = *new const std::vector<GpuModel>{
      {"A100-40", "NVIDIA A100-SXM4-40GB", 42'297'786'368, 512 * kMiB, 8, 0, 108, 2048, 32,
       164 * kKiB, 163 * kKiB, 40 * kL2MiB, 5120, true},
      {"A100-80", "NVIDIA A100-SXM4-80GB", 84'986'691'584, 512 * kMiB, 8, 0, 108, 2048, 32,
       164 * kKiB, 163 * kKiB, 40 * kL2MiB, 5120, true},
      {"H100-80", "NVIDIA H100 80GB HBM3", 84'942'979'072, 576 * kMiB, 9, 0, 132, 2048, 32,
       228 * kKiB, 227 * kKiB, 50 * kL2MiB, 5120, true},
      {"H200-141", "NVIDIA H200", 150'110'011'392, 576 * kMiB, 9, 0, 132, 2048, 32, 228 * kKiB,
       227 * kKiB, 60 * kL2MiB, 6144, true},
      {"B200-180", "NVIDIA B200", 191'514'017'792, 640 * kMiB, 10, 0, 148, 2048, 32, 228 * kKiB,
       227 * kKiB, 126 * kL2MiB, 7680, true},
      {"L4-24", "NVIDIA L4", 23'580'639'232, 320 * kMiB, 8, 9, 58, 1536, 24, 100 * kKiB, 99 * kKiB,
       48 * kL2MiB, 192, false},
      {"L40S-48", "NVIDIA L40S", 47'576'711'168, 576 * kMiB, 8, 9, 142, 1536, 24, 100 * kKiB,
       99 * kKiB, 96 * kL2MiB, 384, false},
      {"A10G-24", "NVIDIA A10G", 23'609'475'072, 384 * kMiB, 8, 6, 80, 1536, 16, 100 * kKiB,
       99 * kKiB, 6 * kL2MiB, 384, false},
      {"T4-16", "Tesla T4", 15'642'329'088, 256 * kMiB, 7, 5, 40, 1024, 16, 64 * kKiB, 64 * kKiB,
       4 * kL2MiB, 256, false},
      {"V100-16", "Tesla V100-SXM2-16GB", 16'945'512'448, 448 * kMiB, 7, 0, 80, 2048, 32, 96 * kKiB,
       96 * kKiB, 6 * kL2MiB, 4096, true},
      {"V100-32", "Tesla V100-SXM2-32GB", 34'079'899'648, 448 * kMiB, 7, 0, 80, 2048, 32, 96 * kKiB,
       96 * kKiB, 6 * kL2MiB, 4096, true},
      {"RTX3090-24", "NVIDIA GeForce RTX 3090", 25'447'170'048, 384 * kMiB, 8, 6, 82, 1536, 16,
       100 * kKiB, 99 * kKiB, 6 * kL2MiB, 384, false},
      {"RTX4090-24", "NVIDIA GeForce RTX 4090", 25'282'281'472, 512 * kMiB, 8, 9, 128, 1536, 24,
       100 * kKiB, 99 * kKiB, 72 * kL2MiB, 384, false},
      {"RTX5090-32", "NVIDIA GeForce RTX 5090", 33'677'180'928, 640 * kMiB, 12, 0, 170, 1536, 24,
       100 * kKiB, 99 * kKiB, 96 * kL2MiB, 512, false},
  };
  return table;
}

const GpuModel* find_gpu(std::string_view name) {
  const GpuModel* found = nullptr;
  std::size_t begun = 0;
  for (const GpuModel& gpu : gpus()) {
    if (same(gpu.short_name, name)) return &gpu;
    if (!same(gpu.short_name.substr(0, gpu.short_name.rfind('-')), name)) continue;
    found = &gpu;
    ++begun;
  }
  return begun == 1 ? found : nullptr;
}

std::string gpu_names() {
  std::string names;
  for (const GpuModel& gpu : gpus()) {
    if (!names.empty()) names += &gpu == &gpus().back() ? " or " : ", ";
    names += gpu.short_name;
  }
  return names;
}

}  // namespace berth
