#include "bench/train/data.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>

namespace berth::bench {

namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(fmt::format("{}: cannot be opened", path));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Takes the number up to the next comma off the front of `row`. scikit-learn writes "16" or "16.0".
double take_number(std::string_view& row, const std::string& path, std::size_t line) {
  const std::size_t comma = row.find(',');
  const std::string_view field = row.substr(0, comma);
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size())
    throw std::runtime_error(fmt::format("{}:{}: '{}' is no number", path, line, field));
  row = comma == std::string_view::npos ? std::string_view() : row.substr(comma + 1);
  return value;
}

}  // namespace

Digits read_digits(const std::string& path) {
  constexpr std::size_t kPixels = Digits::kSide * Digits::kSide;
  const std::string text = read_text(path);
  Digits digits;
  std::size_t line = 0;
  for (std::size_t start = 0; start < text.size();) {
    ++line;
    const std::size_t end = std::min(text.find('\n', start), text.size());
    std::string_view row(text.data() + start, end - start);
    start = end + 1;
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (row.empty()) continue;
    for (std::size_t i = 0; i < kPixels; ++i)
      digits.pixels.push_back(static_cast<float>(take_number(row, path, line) / 16.0));
    const double label = take_number(row, path, line);
    if (!row.empty() || !(label >= 0 && label <= 9))
      throw std::runtime_error(
          fmt::format("{}:{}: want {} pixels and a label of 0 to 9", path, line, kPixels));
    digits.labels.push_back(static_cast<std::int64_t>(label));
  }
  if (digits.labels.empty()) throw std::runtime_error(fmt::format("{}: no digits in it", path));
  return digits;
}

Characters read_characters(const std::string& path) {
  const std::string text = read_text(path);
  std::array<bool, 256> seen{};
  for (const char c : text) seen[static_cast<unsigned char>(c)] = true;
  Characters characters;
  std::array<std::uint8_t, 256> number{};
  for (std::size_t c = 0; c < seen.size(); ++c) {
    if (!seen[c]) continue;
    number[c] = static_cast<std::uint8_t>(characters.alphabet.size());
    characters.alphabet.push_back(static_cast<char>(c));
  }
  characters.text.reserve(text.size());
  for (const char c : text) characters.text.push_back(number[static_cast<unsigned char>(c)]);
  return characters;
}

}  // namespace berth::bench
