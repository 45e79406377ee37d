#pragma once

#include "csrc/core/bytes.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace berth {

// Which device's memory an address lies in, without a lock: so that a free asks one device and not
// each in turn. Devices are numbers of the owner's.
//
// A guess, to be confirmed by that device: granules are 2 MiB, the last who noted one has it, and
// memory that went back is not taken out. On GPUs memory comes in pages of that size, so the guess
// is right for all that lives. Thread-safe; find() is two loads. Host memory: 128 KiB, and 8 KiB
// for each 16 GiB of addresses in which there ever was memory.
class AddressTable {
 public:
  static constexpr int kNone = -1;
  static constexpr int kMaxDevices = 255;

  AddressTable() = default;
  ~AddressTable();
  AddressTable(const AddressTable&) = delete;
  AddressTable& operator=(const AddressTable&) = delete;

  // This memory is the device's. Does nothing where the host's memory is exhausted or the
  // address is beyond 2^48.
  void note(const void* base, Bytes size, int device) noexcept;

  // The device, or kNone.
  [[nodiscard]] int find(const void* address) const noexcept {
    const std::size_t granule = granule_of(address);
    if (granule / kLeaf >= kRoot) return kNone;
    const Leaf* const leaf = root_[granule / kLeaf].load(std::memory_order_acquire);
    if (leaf == nullptr) return kNone;
    return (*leaf)[granule % kLeaf].load(std::memory_order_relaxed) - 1;
  }

 private:
  static constexpr unsigned kGranuleBits = 21, kAddressBits = 48;
  static constexpr std::size_t kLeaf = 8192;
  static constexpr std::size_t kRoot = (std::size_t{1} << (kAddressBits - kGranuleBits)) / kLeaf;
  using Leaf = std::array<std::atomic<std::uint8_t>, kLeaf>;  // a device's number and 1

  [[nodiscard]] static std::size_t granule_of(const void* address) noexcept {
    return reinterpret_cast<std::uintptr_t>(address) >> kGranuleBits;
  }
  [[nodiscard]] Leaf* leaf(std::size_t index) noexcept;

  std::array<std::atomic<Leaf*>, kRoot> root_{};
};

}  // namespace berth
