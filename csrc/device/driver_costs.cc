#include "csrc/device/driver_costs.h"

#include <numeric>

namespace berth {
namespace {

// Virtual memory: kvcached (ovg-project/kvcached), benchmarks/bench_layout/H100_results.md for the
// H100, benchmarks/bench_vmm/README.md for the A100 with 4,096 handles alive, for handles of 2 MiB.
// It has no release on an A100: that of the H100 stands for it. cudaMalloc and cudaFree: 66.5 us a
// pair (rapidsai/rmm#284, 100,000 random blocks of up to 2 MiB), half of it each. Addresses, which
// nobody measured, count as a map: they change no page table.
constexpr DriverCosts kCosts[] = {
    {"H100", {3.3, 3.3, 28.5, 3.3, 59.9, 41.6, 23.4, 33.2, 33.2}},
    {"A100", {1.5, 1.5, 193, 1.5, 36, 25.6, 23.4, 33.2, 33.2}},
};

}  // namespace

std::string_view name_of(MemoryCall call) noexcept {
  constexpr std::string_view kNames[kMemoryCalls] = {
      "cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate", "cuMemMap", "cuMemSetAccess",
      "cuMemUnmap",          "cuMemRelease",     "cudaMalloc",  "cudaFree"};
  return kNames[static_cast<std::size_t>(call)];
}

std::uint64_t MemoryCallCounts::all() const noexcept {
  return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0});
}

MemoryCallCounts MemoryCallCounts::operator-(const MemoryCallCounts& before) const noexcept {
  MemoryCallCounts since;
  for (std::size_t i = 0; i < kMemoryCalls; ++i) since.counts_[i] = counts_[i] - before.counts_[i];
  return since;
}

double DriverCosts::of(const MemoryCallCounts& calls) const noexcept {
  double sum = 0;
  for (std::size_t i = 0; i < kMemoryCalls; ++i)
    sum += microseconds[i] * static_cast<double>(calls.of(static_cast<MemoryCall>(i)));
  return sum;
}

const DriverCosts& driver_costs(std::string_view gpu) noexcept {
  for (const DriverCosts& costs : kCosts)
    if (gpu.substr(0, costs.gpu.size()) == costs.gpu) return costs;
  return kCosts[0];
}

}  // namespace berth
