#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace berth {

// The calls of the CUDA driver that bring memory or take it back.
enum class MemoryCall : std::uint8_t {
  kReserve,        // cuMemAddressReserve
  kFreeAddresses,  // cuMemAddressFree
  kCreate,         // cuMemCreate
  kMap,            // cuMemMap
  kSetAccess,      // cuMemSetAccess
  kUnmap,          // cuMemUnmap
  kRelease,        // cuMemRelease
  kMalloc,         // cudaMalloc
  kFree,           // cudaFree
};
inline constexpr std::size_t kMemoryCalls = 9;

// The driver's or runtime's name of it.
[[nodiscard]] std::string_view name_of(MemoryCall call) noexcept;

// How many of each were made.
class MemoryCallCounts {
 public:
  void add(MemoryCall call, std::uint64_t count = 1) noexcept {
    counts_[static_cast<std::size_t>(call)] += count;
  }
  [[nodiscard]] std::uint64_t of(MemoryCall call) const noexcept {
    return counts_[static_cast<std::size_t>(call)];
  }
  [[nodiscard]] std::uint64_t all() const noexcept;
  // Those that were made since `before`.
  [[nodiscard]] MemoryCallCounts operator-(const MemoryCallCounts& before) const noexcept;

 private:
  std::array<std::uint64_t, kMemoryCalls> counts_{};
};

// What each call costs the host, in microseconds, whatever its size: others' measurements. A call
// that waits for the device takes as long as that in addition.
struct DriverCosts {
  std::string_view gpu;  // the beginning of a short name of gpu_models.h
  std::array<double, kMemoryCalls> microseconds;

  [[nodiscard]] double of(const MemoryCallCounts& calls) const noexcept;
};

// Those of a GPU, by its short name or a part of it; of an H100 where nobody measured it.
[[nodiscard]] const DriverCosts& driver_costs(std::string_view gpu) noexcept;

}  // namespace berth
