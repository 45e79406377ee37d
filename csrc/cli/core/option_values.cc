#include "csrc/cli/core/option_values.h"

#include "csrc/cli/core/spelling.h"
#include "csrc/core/check.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
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

void add_perturbation(PerturbationOption& option, const std::string& text) {
  const std::map<std::string, double replay::Perturbation::*> kinds = {
      {"insert", &replay::Perturbation::insert},
      {"drop", &replay::Perturbation::drop},
      {"resize", &replay::Perturbation::resize},
      {"swap", &replay::Perturbation::swap},
  };
  std::vector<std::string> names = {"seed"};
  for (const auto& [name, member] : kinds) names.push_back(name);
  const std::size_t separator = text.find_first_of("=:");
  const std::string kind = text.substr(0, separator);
  throw_if_unknown("perturbation", kind, names);
  std::string value = separator == std::string::npos ? "" : text.substr(separator + 1);
  if (kind == "seed") {
    BERTH_CHECK(read(value, option.seed), kUsage, "--perturb: {}", is_whole_number(value));
    return;
  }
  const bool percent = value.ends_with('%');
  if (percent) value.pop_back();
  double rate = -1;
  if (!read(value, rate)) rate = -1;
  if (percent) rate /= 100;
  BERTH_CHECK(rate >= 0 && rate <= 1, kUsage,
              "perturbation '{}' has no rate from 0 to 1: write it as {}=1% or {}=0.01", text, kind,
              kind);
  option.perturbation.*kinds.at(kind) = rate;
}

double seconds_since_start() noexcept {
  using Clock = std::chrono::steady_clock;
  static const Clock::time_point start = Clock::now();
  return std::chrono::duration<double>(Clock::now() - start).count();
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
