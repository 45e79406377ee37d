#include "csrc/cli/option_values.h"

#include "csrc/cli/spelling.h"
#include "csrc/core/check.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

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

void add_perturbation(replay::Perturbation& perturbation, const std::string& text) {
  const std::map<std::string, double replay::Perturbation::*> kinds = {
      {"insert", &replay::Perturbation::insert},
      {"drop", &replay::Perturbation::drop},
      {"resize", &replay::Perturbation::resize},
      {"swap", &replay::Perturbation::swap},
  };
  std::vector<std::string> names;
  for (const auto& [name, member] : kinds) names.push_back(name);
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  throw_if_unknown("perturbation", kind, names);
  double rate = -1;
  if (colon == std::string::npos || !read(text.substr(colon + 1), rate)) rate = -1;
  BERTH_CHECK(rate >= 0 && rate <= 1, kUsage,
              "perturbation '{}' has no rate from 0 to 1: write it as {}:0.01", text, kind);
  perturbation.*kinds.at(kind) = rate;
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
