#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Pickles written by hand: each function gives the instructions for one value, file() a whole one.
namespace berth::test::pickled {

inline std::string bytes_of(std::uint64_t value, std::size_t count) {
  std::string text(count, '\0');
  std::memcpy(text.data(), &value, count);
  return text;
}

inline std::string none() { return "N"; }
inline std::string boolean(bool value) { return value ? "\x88" : "\x89"; }
inline std::string number(std::int64_t value) {
  return "\x8A\x08" + bytes_of(static_cast<std::uint64_t>(value), 8);
}
inline std::string text(std::string_view value) {
  return "X" + bytes_of(value.size(), 4) + std::string(value);
}
inline std::string list(const std::vector<std::string>& values) {
  std::string all = "](";
  for (const std::string& value : values) all += value;
  return all + "e";
}
inline std::string tuple(const std::vector<std::string>& values) {
  std::string all = "(";
  for (const std::string& value : values) all += value;
  return all + "t";
}
inline std::string dict(const std::vector<std::pair<std::string, std::string>>& values) {
  std::string all = "}(";
  for (const auto& [key, value] : values) all += text(key) + value;
  return all + "u";
}
inline std::string file(const std::string& root) { return "\x80\x02" + root + "."; }

}  // namespace berth::test::pickled
