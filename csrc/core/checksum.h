#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace berth {

// XXH3, 64 bits: guards files against accidents, not against attackers (the verifier does that).
[[nodiscard]] std::uint64_t checksum(std::span<const std::byte> data,
                                     std::uint64_t seed = 0) noexcept;

// Mixes one value into a running hash of a sequence (order matters).
[[nodiscard]] constexpr std::uint64_t hash_combine(std::uint64_t hash,
                                                   std::uint64_t value) noexcept {
  // The finaliser of splitmix64 (Steele, Lea and Flood 2014) over the sum.
  std::uint64_t x = hash * 0x9E3779B97F4A7C15u + value + 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace berth
