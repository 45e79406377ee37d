#include "csrc/core/bytes.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace berth {

std::string format_bytes(Bytes size) {
  static constexpr std::array<const char*, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (size < 1024) return fmt::format("{} B", size);
  double value = static_cast<double>(size);
  std::size_t unit = 0;
  value /= 1024;
  // 1023.95 and above would print as 1024.0.
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::optional<Bytes> parse_bytes(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  std::size_t digits = 0;
  bool fraction = false;
  while (digits < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[digits])) || text[digits] == '.')) {
    fraction |= text[digits] == '.';
    ++digits;
  }
  if (digits == 0) return std::nullopt;
  std::string_view number = text.substr(0, digits);
  std::string_view unit = text.substr(digits);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);

  Bytes factor = 1;
  if (!unit.empty() && unit != "B") {
    static constexpr std::string_view kPrefixes = "KMGTP";
    const std::size_t power = kPrefixes.find(static_cast<char>(std::toupper(unit.front())));
    if (power == std::string_view::npos) return std::nullopt;
    const std::string_view rest = unit.substr(1);
    Bytes base = 1024;
    if (rest == "B") {
      base = 1000;
    } else if (!rest.empty() && rest != "iB") {
      return std::nullopt;
    }
    for (std::size_t i = 0; i <= power; ++i) factor *= base;
  }
  const char* end = number.data() + number.size();
  if (!fraction) {
    Bytes value = 0;
    const auto [stop, error] = std::from_chars(number.data(), end, value);
    if (error != std::errc() || stop != end) return std::nullopt;
    return checked_multiply(value, factor);
  }
  double value = 0;
  const auto [stop, error] = std::from_chars(number.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  value *= static_cast<double>(factor);
  if (!(value < static_cast<double>(kMaxBytes))) return std::nullopt;
  return static_cast<Bytes>(std::llround(value));
}

}  // namespace berth
