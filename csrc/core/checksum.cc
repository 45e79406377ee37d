#include "csrc/core/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace berth {

std::uint64_t checksum(std::span<const std::byte> data, std::uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(data.data(), data.size(), seed);
}

}  // namespace berth
