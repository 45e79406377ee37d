#pragma once

#include <cstdint>
#include <string>
#include <vector>

// The two data sets that the benchmarks train on, read without libtorch.
namespace berth::bench {

// UCI's optical recognition of handwritten digits, as scikit-learn ships it: 8 x 8 pixels of 0..16.
struct Digits {
  static constexpr std::int64_t kSide = 8;
  std::vector<float> pixels;         // kSide * kSide a sample, 0..1
  std::vector<std::int64_t> labels;  // 0..9
};
// Reads rows of 64 pixels and a label, comma-separated. Throws std::runtime_error naming path, line
// and reason.
[[nodiscard]] Digits read_digits(const std::string& path);

// A text as numbers of its characters.
struct Characters {
  std::vector<std::uint8_t> text;  // indices into `alphabet`
  std::string alphabet;            // the bytes that occur, ascending
};
[[nodiscard]] Characters read_characters(const std::string& path);

}  // namespace berth::bench
