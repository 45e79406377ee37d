#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth::schedule {

// A square table of bits: sets of nodes, one for each node.
class BitRows {
 public:
  explicit BitRows(std::size_t size) : words_((size + 63) / 64), bits_(words_ * size) {}

  [[nodiscard]] bool has(std::size_t row, std::size_t bit) const noexcept {
    return (bits_[row * words_ + bit / 64] >> (bit % 64) & 1) != 0;
  }
  void add(std::size_t row, std::size_t bit) noexcept {
    bits_[row * words_ + bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
  void add_row(std::size_t row, std::size_t other) noexcept {
    for (std::size_t w = 0; w < words_; ++w) bits_[row * words_ + w] |= bits_[other * words_ + w];
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace berth::schedule
