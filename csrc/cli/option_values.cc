#include "csrc/cli/option_values.h"

#include "csrc/core/check.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <limits>

namespace berth::cli {
namespace {

// Reads all of a text as a number; false where it is none.
template <class Number>
bool read(const std::string& text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && stop == end;
}

}  // namespace

Bytes size_option(const char* name, const std::string& text) {
  const auto size = parse_bytes(text);
  BERTH_CHECK(size.has_value() && *size > 0, kUsage,
              "{} is '{}': a size is wanted, such as 80GiB or 1048576", name, text);
  return *size;
}

std::string is_whole_number(const std::string& text) {
  std::uint64_t number = 0;
  if (read(text, number)) return "";
  return fmt::format("'{}' is no whole number from 0 to {}", text,
                     std::numeric_limits<std::uint64_t>::max());
}

std::string is_time_limit(const std::string& text) {
  double seconds = 0;
  if (read(text, seconds) && seconds > 0 && seconds <= 1e9) return "";
  return fmt::format("'{}' is no number of seconds above 0 and up to 1e9", text);
}

}  // namespace berth::cli
