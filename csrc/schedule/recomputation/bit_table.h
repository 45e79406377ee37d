#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace berth::schedule {

using Words = std::span<std::uint64_t>;
using ConstWords = std::span<const std::uint64_t>;

// Rows of bits, all of one length.
class BitTable {
 public:
  BitTable(std::size_t rows, std::size_t bits)
      : words_((bits + 63) / 64), bits_(rows * words_, 0) {}

  [[nodiscard]] bool has(std::size_t row, std::size_t bit) const noexcept {
    return (bits_[row * words_ + bit / 64] >> (bit % 64) & 1) != 0;
  }
  void flip(std::size_t row, std::size_t bit) noexcept {
    bits_[row * words_ + bit / 64] ^= std::uint64_t{1} << (bit % 64);
  }
  void add(std::size_t row, std::size_t bit) noexcept {
    bits_[row * words_ + bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
  [[nodiscard]] Words row(std::size_t row) noexcept {
    return Words(bits_).subspan(row * words_, words_);
  }
  [[nodiscard]] ConstWords row(std::size_t row) const noexcept {
    return ConstWords(bits_).subspan(row * words_, words_);
  }
  // Whether they have as many rows, of as many words.
  [[nodiscard]] bool alike(const BitTable& other) const noexcept {
    return words_ == other.words_ && bits_.size() == other.bits_.size();
  }
  [[nodiscard]] std::size_t words() const noexcept { return words_; }
  friend bool operator==(const BitTable&, const BitTable&) = default;

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

[[nodiscard]] inline bool has(ConstWords words, std::size_t bit) noexcept {
  return (words[bit / 64] >> (bit % 64) & 1) != 0;
}
[[nodiscard]] inline bool meet(ConstWords a, ConstWords b) noexcept {
  for (std::size_t w = 0; w < a.size(); ++w)
    if ((a[w] & b[w]) != 0) return true;
  return false;
}
// Calls visit(bit) for each bit that is set, ascending.
template <class Visit>
void for_each_bit(ConstWords words, const Visit& visit) {
  for (std::size_t w = 0; w < words.size(); ++w)
    for (std::uint64_t left = words[w]; left != 0; left &= left - 1)
      visit(w * 64 + static_cast<std::size_t>(std::countr_zero(left)));
}

}  // namespace berth::schedule
