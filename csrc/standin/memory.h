#pragma once

#include "csrc/standin/abi.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace berth::standin {

// The memory of one device: pages of one sparse anonymous file, which cost the host something only
// once they are written to. What is allocated counts against a total.
//
// Places in the file are never used twice, so nothing here fragments; freed pages are given back to
// the host. The file is what lets two mappings, of one process or of two, show the same bytes.
class DeviceMemory {
 public:
  // Where it overcommits the total is what it says that it has, and limits nothing.
  explicit DeviceMemory(std::size_t total, bool overcommit = false);

  // A piece of the file of `size` bytes; nothing where the total does not allow it.
  std::optional<std::uint64_t> allocate(std::size_t size);
  void release(std::uint64_t offset, std::size_t size) noexcept;

  [[nodiscard]] int file() const { return file_; }
  [[nodiscard]] std::size_t total() const { return total_; }
  [[nodiscard]] std::size_t used() const { return used_; }
  [[nodiscard]] std::size_t peak() const { return peak_; }

  // Counts bytes that have no place in the file, as many of them as there is room for. How many.
  std::size_t take(std::size_t size);
  void give(std::size_t size) { used_ -= size; }

  // What another process takes, as it seems.
  void take_elsewhere(std::size_t bytes) { elsewhere_ = bytes; }
  [[nodiscard]] std::size_t free() const;

 private:
  int file_ = -1;
  std::size_t total_;
  bool overcommit_;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
  std::size_t elsewhere_ = 0;
  std::uint64_t next_offset_ = 0;
};

// What an address belongs to.
struct Allocation {
  enum class Kind { kDevice, kPool, kImported, kHost, kRegistered, kMapped, kManaged };

  std::uintptr_t begin = 0;
  std::size_t size = 0;    // as the program asked
  std::size_t mapped = 0;  // as it counts
  Kind kind = Kind::kDevice;
  int device = 0;
  std::uint64_t offset = 0;  // in the device's file
  std::uint64_t handle = 0;  // kMapped: the physical memory; kPool: the pool
  std::uintptr_t bytes = 0;  // kMapped: the name of its first byte, the same at all its addresses
  std::size_t resident = 0;  // kManaged: what of it counts as the device's
  std::uint64_t reach = 0;   // kMapped: a bit for each device that has access

  [[nodiscard]] std::uintptr_t end() const { return begin + mapped; }
  [[nodiscard]] bool on_device() const { return kind != Kind::kHost && kind != Kind::kRegistered; }
};

// Some bytes by their address and by the name of the memory there: the address itself, unless the
// memory may have others.
struct NamedBytes {
  std::uintptr_t begin = 0;
  std::uintptr_t bytes = 0;
  std::size_t size = 0;
};

// All ranges that the stand-in handed out, by address. A reserved range holds mapped ones, so it is
// kept apart.
class AddressSpace {
 public:
  void add(const Allocation& allocation);
  bool remove(std::uintptr_t begin);

  // The allocation that starts at or holds the address, or null.
  [[nodiscard]] const Allocation* at(std::uintptr_t begin) const;
  [[nodiscard]] Allocation* at(std::uintptr_t begin) {
    return const_cast<Allocation*>(std::as_const(*this).at(begin));
  }
  [[nodiscard]] const Allocation* holding(std::uintptr_t address) const;
  [[nodiscard]] bool overlaps(std::uintptr_t begin, std::uintptr_t end) const;

  // Reservations of virtual memory.
  void add_reservation(std::uintptr_t begin, std::size_t size) { reserved_[begin] = size; }
  bool remove_reservation(std::uintptr_t begin, std::size_t size);
  [[nodiscard]] bool reserved(std::uintptr_t begin, std::size_t size) const;

  [[nodiscard]] std::vector<Allocation> all() const;
  // The bytes of [begin, begin + size), in pieces.
  [[nodiscard]] std::vector<NamedBytes> named(std::uintptr_t begin, std::size_t size) const;

 private:
  std::map<std::uintptr_t, Allocation> allocations_;
  std::map<std::uintptr_t, std::size_t> reserved_;
};

// How much an allocation of `size` bytes counts: small ones share pages of 2 MiB.
std::size_t counted_bytes(std::size_t size);

// What the files of devices' memory are called.
inline constexpr char kDeviceFile[] = "berth-standin-device";

inline constexpr std::size_t kGranularity = std::size_t{2} << 20;

// The name of the first byte of a file of device memory, of this process or another. Names are no
// addresses; those of one file are neighbours.
std::uintptr_t bytes_of(int file);

// Maps a piece of a device's file, anywhere or at `address`. Null where the host refuses.
void* map_file(int file, std::uint64_t offset, std::size_t size, void* address = nullptr);
// Takes the pages of a range away; the addresses stay reserved.
void unmap_to_reserved(void* address, std::size_t size) noexcept;

}  // namespace berth::standin
