#include "csrc/device/gpu_models.h"

#include <cctype>

namespace berth {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr int kL2MiB = 1024 * 1024;

// In capitals, without what people put between the parts of a name.
std::string plain(std::string_view text) {
  std::string result;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      result += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

// The driver's name, as "NVIDIA GeForce RTX 4090", "GeForce RTX 4090" or "RTX 4090".
bool is_name(std::string_view name, const std::string& wanted) {
  if (plain(name) == wanted) return true;
  for (const std::string_view maker : {"NVIDIA ", "GeForce ", "Tesla "}) {
    if (!name.starts_with(maker)) continue;
    name.remove_prefix(maker.size());
    if (plain(name) == wanted) return true;
  }
  return false;
}

bool fits(const GpuModel& gpu, const std::string& wanted) {
  for (std::size_t end = gpu.short_name.find('-'); end != std::string_view::npos;
       end = gpu.short_name.find('-', end + 1))
    if (plain(gpu.short_name.substr(0, end)) == wanted) return true;
  return is_name(gpu.name, wanted);
}

}  // namespace

const std::vector<GpuModel>& gpus() {
  // Totals: what deviceQuery or torch print on such machines (those in MiB are rounded); a driver's
  // other version may take some 1 % more or less. Contexts: on an RTX 3090 256 MiB before the first
  // kernel (torch 2.7, invoke-ai/InvokeAI#9413), some 300 MiB with a first model
  // (pytorch/pytorch#107667); the driver keeps memory for each multiprocessor, so the others go by
  // their number, and all have 128 MiB for the kernels and handles of cuBLAS and cuDNN. Speeds: the
  // makers' data sheets, at boost clock and without sparsity; of GeForce, products of 16-bit
  // numbers are those that add up in 32 bits, twice as fast as fp32.
  static const auto& table = *new const std::vector<GpuModel>{
      {"A100-40", "NVIDIA A100-SXM4-40GB", 42'297'786'368, 512 * kMiB, 8, 0, 108, 2048, 32,
       164 * kKiB, 163 * kKiB, 40 * kL2MiB, 5120, true, 19.5, 312, 1555},
      {"A100-80", "NVIDIA A100-SXM4-80GB", 84'986'691'584, 512 * kMiB, 8, 0, 108, 2048, 32,
       164 * kKiB, 163 * kKiB, 40 * kL2MiB, 5120, true, 19.5, 312, 2039},
      {"H100-80", "NVIDIA H100 80GB HBM3", 84'942'979'072, 576 * kMiB, 9, 0, 132, 2048, 32,
       228 * kKiB, 227 * kKiB, 50 * kL2MiB, 5120, true, 66.9, 989, 3352},
      {"H100-PCIe-80", "NVIDIA H100 PCIe", 84'942'979'072, 512 * kMiB, 9, 0, 114, 2048, 32,
       228 * kKiB, 227 * kKiB, 50 * kL2MiB, 5120, true, 51.2, 756, 2039},
      {"H100-NVL-94", "NVIDIA H100 NVL", 95'339 * kMiB, 576 * kMiB, 9, 0, 132, 2048, 32, 228 * kKiB,
       227 * kKiB, 50 * kL2MiB, 6016, true, 60.3, 835, 3938},
      {"GH200-96", "NVIDIA GH200 480GB", 96'768 * kMiB, 576 * kMiB, 9, 0, 132, 2048, 32, 228 * kKiB,
       227 * kKiB, 60 * kL2MiB, 6144, true, 66.9, 990, 4023},
      {"H200-141", "NVIDIA H200", 150'110'011'392, 576 * kMiB, 9, 0, 132, 2048, 32, 228 * kKiB,
       227 * kKiB, 60 * kL2MiB, 6144, true, 66.9, 989, 4800},
      {"B200-180", "NVIDIA B200", 191'514'017'792, 640 * kMiB, 10, 0, 148, 2048, 32, 228 * kKiB,
       227 * kKiB, 126 * kL2MiB, 7680, true, 75, 2250, 8000},
      {"B300-288", "NVIDIA B300 SXM6 AC", 274'115 * kMiB, 640 * kMiB, 10, 3, 148, 2048, 32,
       228 * kKiB, 227 * kKiB, 126 * kL2MiB, 8192, true, 75, 2250, 8000},
      {"L4-24", "NVIDIA L4", 23'580'639'232, 320 * kMiB, 8, 9, 58, 1536, 24, 100 * kKiB, 99 * kKiB,
       48 * kL2MiB, 192, false, 30.3, 121, 300},
      {"L40-48", "NVIDIA L40", 45'372 * kMiB, 576 * kMiB, 8, 9, 142, 1536, 24, 100 * kKiB,
       99 * kKiB, 96 * kL2MiB, 384, false, 90.5, 181, 864},
      {"L40S-48", "NVIDIA L40S", 47'576'711'168, 576 * kMiB, 8, 9, 142, 1536, 24, 100 * kKiB,
       99 * kKiB, 96 * kL2MiB, 384, false, 91.6, 362, 864},
      {"A10G-24", "NVIDIA A10G", 23'609'475'072, 384 * kMiB, 8, 6, 80, 1536, 16, 100 * kKiB,
       99 * kKiB, 6 * kL2MiB, 384, false, 31.5, 70, 600},
      {"A40-48", "NVIDIA A40", 45'634 * kMiB, 384 * kMiB, 8, 6, 84, 1536, 16, 100 * kKiB, 99 * kKiB,
       6 * kL2MiB, 384, true, 37.4, 150, 696},
      {"A6000-48", "NVIDIA RTX A6000", 48'669 * kMiB, 384 * kMiB, 8, 6, 84, 1536, 16, 100 * kKiB,
       99 * kKiB, 6 * kL2MiB, 384, true, 38.7, 155, 768},
      {"T4-16", "Tesla T4", 15'642'329'088, 256 * kMiB, 7, 5, 40, 1024, 16, 64 * kKiB, 64 * kKiB,
       4 * kL2MiB, 256, false, 8.1, 65, 320},
      {"V100-16", "Tesla V100-SXM2-16GB", 16'945'512'448, 448 * kMiB, 7, 0, 80, 2048, 32, 96 * kKiB,
       96 * kKiB, 6 * kL2MiB, 4096, true, 15.7, 125, 900},
      {"V100-32", "Tesla V100-SXM2-32GB", 34'079'899'648, 448 * kMiB, 7, 0, 80, 2048, 32, 96 * kKiB,
       96 * kKiB, 6 * kL2MiB, 4096, true, 15.7, 125, 900},
      {"RTX3060-12", "NVIDIA GeForce RTX 3060", 12'045 * kMiB, 256 * kMiB, 8, 6, 28, 1536, 16,
       100 * kKiB, 99 * kKiB, 3 * kL2MiB, 192, false, 12.7, 25.4, 360},
      {"RTX3060Ti-8", "NVIDIA GeForce RTX 3060 Ti", 7'982 * kMiB, 256 * kMiB, 8, 6, 38, 1536, 16,
       100 * kKiB, 99 * kKiB, 4 * kL2MiB, 256, false, 16.2, 32.4, 448},
      {"RTX3070-8", "NVIDIA GeForce RTX 3070", 7'982 * kMiB, 256 * kMiB, 8, 6, 46, 1536, 16,
       100 * kKiB, 99 * kKiB, 4 * kL2MiB, 256, false, 20.3, 40.6, 448},
      {"RTX3070Ti-8", "NVIDIA GeForce RTX 3070 Ti", 7'982 * kMiB, 256 * kMiB, 8, 6, 48, 1536, 16,
       100 * kKiB, 99 * kKiB, 4 * kL2MiB, 256, false, 21.7, 43.4, 608},
      {"RTX3080-10", "NVIDIA GeForce RTX 3080", 10'015 * kMiB, 320 * kMiB, 8, 6, 68, 1536, 16,
       100 * kKiB, 99 * kKiB, 5 * kL2MiB, 320, false, 29.8, 59.6, 760},
      {"RTX3080-12", "NVIDIA GeForce RTX 3080", 12'045 * kMiB, 320 * kMiB, 8, 6, 70, 1536, 16,
       100 * kKiB, 99 * kKiB, 6 * kL2MiB, 384, false, 30.6, 61.2, 912},
      {"RTX3080Ti-12", "NVIDIA GeForce RTX 3080 Ti", 12'053 * kMiB, 384 * kMiB, 8, 6, 80, 1536, 16,
       100 * kKiB, 99 * kKiB, 6 * kL2MiB, 384, false, 34.1, 68.2, 912},
      {"RTX3090-24", "NVIDIA GeForce RTX 3090", 25'447'170'048, 384 * kMiB, 8, 6, 82, 1536, 16,
       100 * kKiB, 99 * kKiB, 6 * kL2MiB, 384, false, 35.6, 71.2, 936},
      {"RTX3090Ti-24", "NVIDIA GeForce RTX 3090 Ti", 24'247 * kMiB, 384 * kMiB, 8, 6, 84, 1536, 16,
       100 * kKiB, 99 * kKiB, 6 * kL2MiB, 384, false, 40, 80, 1008},
      {"RTX4060-8", "NVIDIA GeForce RTX 4060", 7'938 * kMiB, 192 * kMiB, 8, 9, 24, 1536, 24,
       100 * kKiB, 99 * kKiB, 24 * kL2MiB, 128, false, 15.1, 30.2, 272},
      {"RTX4060Ti-8", "NVIDIA GeForce RTX 4060 Ti", 7'938 * kMiB, 256 * kMiB, 8, 9, 34, 1536, 24,
       100 * kKiB, 99 * kKiB, 32 * kL2MiB, 128, false, 22.1, 44.2, 288},
      {"RTX4060Ti-16", "NVIDIA GeForce RTX 4060 Ti", 16'076 * kMiB, 256 * kMiB, 8, 9, 34, 1536, 24,
       100 * kKiB, 99 * kKiB, 32 * kL2MiB, 128, false, 22.1, 44.2, 288},
      {"RTX4070-12", "NVIDIA GeForce RTX 4070", 12'010 * kMiB, 256 * kMiB, 8, 9, 46, 1536, 24,
       100 * kKiB, 99 * kKiB, 36 * kL2MiB, 192, false, 29.1, 58.2, 504},
      {"RTX4070Super-12", "NVIDIA GeForce RTX 4070 SUPER", 12'010 * kMiB, 320 * kMiB, 8, 9, 56,
       1536, 24, 100 * kKiB, 99 * kKiB, 48 * kL2MiB, 192, false, 35.5, 71, 504},
      {"RTX4070Ti-12", "NVIDIA GeForce RTX 4070 Ti", 12'010 * kMiB, 320 * kMiB, 8, 9, 60, 1536, 24,
       100 * kKiB, 99 * kKiB, 48 * kL2MiB, 192, false, 40.1, 80.2, 504},
      {"RTX4070TiSuper-16", "NVIDIA GeForce RTX 4070 Ti SUPER", 16'076 * kMiB, 320 * kMiB, 8, 9, 66,
       1536, 24, 100 * kKiB, 99 * kKiB, 48 * kL2MiB, 256, false, 44.1, 88.2, 672},
      {"RTX4080-16", "NVIDIA GeForce RTX 4080", 16'076 * kMiB, 384 * kMiB, 8, 9, 76, 1536, 24,
       100 * kKiB, 99 * kKiB, 64 * kL2MiB, 256, false, 48.7, 97.4, 717},
      {"RTX4080Super-16", "NVIDIA GeForce RTX 4080 SUPER", 16'076 * kMiB, 384 * kMiB, 8, 9, 80,
       1536, 24, 100 * kKiB, 99 * kKiB, 64 * kL2MiB, 256, false, 52.2, 104.4, 736},
      {"RTX4090-24", "NVIDIA GeForce RTX 4090", 25'282'281'472, 512 * kMiB, 8, 9, 128, 1536, 24,
       100 * kKiB, 99 * kKiB, 72 * kL2MiB, 384, false, 82.6, 165.2, 1008},
      {"RTX5060-8", "NVIDIA GeForce RTX 5060", 7'691 * kMiB, 256 * kMiB, 12, 0, 30, 1536, 24,
       100 * kKiB, 99 * kKiB, 32 * kL2MiB, 128, false, 19.2, 38.4, 448},
      {"RTX5060Ti-8", "NVIDIA GeForce RTX 5060 Ti", 7'691 * kMiB, 256 * kMiB, 12, 0, 36, 1536, 24,
       100 * kKiB, 99 * kKiB, 32 * kL2MiB, 128, false, 23.7, 47.4, 448},
      {"RTX5060Ti-16", "NVIDIA GeForce RTX 5060 Ti", 15'843 * kMiB, 256 * kMiB, 12, 0, 36, 1536, 24,
       100 * kKiB, 99 * kKiB, 32 * kL2MiB, 128, false, 23.7, 47.4, 448},
      {"RTX5070-12", "NVIDIA GeForce RTX 5070", 11'768 * kMiB, 256 * kMiB, 12, 0, 48, 1536, 24,
       100 * kKiB, 99 * kKiB, 48 * kL2MiB, 192, false, 30.9, 61.8, 672},
      {"RTX5070Ti-16", "NVIDIA GeForce RTX 5070 Ti", 15'843 * kMiB, 320 * kMiB, 12, 0, 70, 1536, 24,
       100 * kKiB, 99 * kKiB, 48 * kL2MiB, 256, false, 43.9, 87.8, 896},
      {"RTX5080-16", "NVIDIA GeForce RTX 5080", 15'843 * kMiB, 384 * kMiB, 12, 0, 84, 1536, 24,
       100 * kKiB, 99 * kKiB, 64 * kL2MiB, 256, false, 56.3, 112.6, 960},
      {"RTX5090-32", "NVIDIA GeForce RTX 5090", 33'677'180'928, 640 * kMiB, 12, 0, 170, 1536, 24,
       100 * kKiB, 99 * kKiB, 96 * kL2MiB, 512, false, 104.8, 209.6, 1792},
  };
  return table;
}

std::vector<const GpuModel*> gpus_named(std::string_view name) {
  const std::string wanted = plain(name);
  std::vector<const GpuModel*> found;
  if (wanted.empty()) return found;
  for (const GpuModel& gpu : gpus()) {
    if (plain(gpu.short_name) == wanted) return {&gpu};
    if (fits(gpu, wanted)) found.push_back(&gpu);
  }
  return found;
}

const GpuModel* find_gpu(std::string_view name) {
  const std::vector<const GpuModel*> found = gpus_named(name);
  return found.size() == 1 ? found.front() : nullptr;
}

std::string gpu_names(const std::vector<const GpuModel*>& list) {
  std::string names;
  for (const GpuModel* const gpu : list) {
    if (!names.empty()) names += gpu == list.back() ? " or " : ", ";
    names += gpu->short_name;
  }
  return names;
}

std::string gpu_names() {
  std::vector<const GpuModel*> all;
  for (const GpuModel& gpu : gpus()) all.push_back(&gpu);
  return gpu_names(all);
}

}  // namespace berth
