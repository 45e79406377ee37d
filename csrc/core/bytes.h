#pragma once

#include <berth/bytes.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace berth {

[[nodiscard]] constexpr bool is_power_of_two(Bytes value) noexcept {
  return value != 0 && (value & (value - 1)) == 0;
}

// The smallest multiple of `alignment` (a power of two) that is not below `value`.
// Requires value <= kMaxBytes.
[[nodiscard]] constexpr Bytes align_up(Bytes value, Bytes alignment) noexcept {
  return (value + alignment - 1) & ~(alignment - 1);
}

[[nodiscard]] constexpr Bytes align_down(Bytes value, Bytes alignment) noexcept {
  return value & ~(alignment - 1);
}

// The sum, or nothing where it exceeds kMaxBytes.
[[nodiscard]] constexpr std::optional<Bytes> checked_add(Bytes a, Bytes b) noexcept {
  if (a > kMaxBytes || b > kMaxBytes - a) return std::nullopt;
  return a + b;
}

// The product, or nothing where it exceeds kMaxBytes.
[[nodiscard]] constexpr std::optional<Bytes> checked_multiply(Bytes a, Bytes b) noexcept {
  if (b != 0 && a > kMaxBytes / b) return std::nullopt;
  return a * b;
}

// The pointer to an address that is counted in bytes.
[[nodiscard]] inline void* pointer_at(Bytes address) noexcept {
  return reinterpret_cast<void*>(address);
}

// For people: "512 B", "2.1 GiB".
[[nodiscard]] std::string format_bytes(Bytes size);

// Reads "1048576", "64KiB", "2.5 GiB", "80GB" (decimal units with B alone, binary with iB; K, M, G,
// T without B are binary). Nothing where the text is no size or exceeds kMaxBytes.
[[nodiscard]] std::optional<Bytes> parse_bytes(std::string_view text);

}  // namespace berth
