#pragma once

#include "csrc/core/bytes.h"
#include "csrc/core/interval_map.h"

#include <berth/error.h>

#include <fmt/format.h>

#include <cstdint>

namespace berth {

// Promise A, the slow way: every live block by its address, so that none is handed out on bytes of
// another, whatever a plan says. Not thread-safe. O(log n).
class OverlapCheck {
 public:
  // Block `id` is to be handed out. Throws Error(kInput) where it would share bytes with another
  // block, or std::bad_alloc; it is not known then.
  void add(const void* pointer, Bytes size, std::uint64_t id) {
    const auto address = reinterpret_cast<Bytes>(pointer);
    const ByteRange bytes{address, address + size};
    if (live_.insert(bytes, id)) return;
    const auto other = live_.find_touching(bytes);
    throw Error(
        ErrorKind::kInput,
        fmt::format(
            "block {} of {} at {:#x} would share bytes with live block {} at {:#x}: stopped", id,
            format_bytes(size), address, *live_.find(other->first), other->first));
  }
  void remove(const void* pointer) noexcept { live_.erase(reinterpret_cast<Bytes>(pointer)); }

 private:
  IntervalMap<std::uint64_t> live_;
};

}  // namespace berth
