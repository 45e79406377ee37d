#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth::place {

// A set of small integers with neighbour search: a tree of 64-bit words. Everything is O(log64 n).
class BitSet {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  // Empties the set and makes it one of integers below `size`.
  void reset(std::size_t size) {
    levels_.clear();
    do {
      size = (size + 63) / 64;
      levels_.emplace_back(size, 0);
    } while (size > 1);
  }
  [[nodiscard]] bool contains(std::uint32_t x) const noexcept {
    return (levels_[0][x / 64] >> (x % 64) & 1) != 0;
  }
  [[nodiscard]] bool empty() const noexcept { return levels_.back()[0] == 0; }
  void insert(std::uint32_t x) noexcept {
    for (auto& level : levels_) {
      level[x / 64] |= std::uint64_t{1} << (x % 64);
      x /= 64;
    }
  }
  void erase(std::uint32_t x) noexcept {
    for (auto& level : levels_) {
      level[x / 64] &= ~(std::uint64_t{1} << (x % 64));
      if (level[x / 64] != 0) return;
      x /= 64;
    }
  }
  // The smallest member that is at least `x`, or kNone.
  [[nodiscard]] std::uint32_t next(std::uint32_t x) const noexcept {
    for (std::size_t h = 0; h < levels_.size(); ++h) {
      if (x / 64 >= levels_[h].size()) return kNone;
      const std::uint64_t word = levels_[h][x / 64] >> (x % 64);
      if (word != 0) {
        x += static_cast<std::uint32_t>(std::countr_zero(word));
        while (h-- > 0) x = x * 64 + static_cast<std::uint32_t>(std::countr_zero(levels_[h][x]));
        return x;
      }
      x = x / 64 + 1;
    }
    return kNone;
  }
  // The largest member that is at most `x`, or kNone.
  [[nodiscard]] std::uint32_t previous(std::uint32_t x) const noexcept {
    for (std::size_t h = 0; h < levels_.size(); ++h) {
      const std::uint64_t word = levels_[h][x / 64] << (63 - x % 64);
      if (word != 0) {
        x -= static_cast<std::uint32_t>(std::countl_zero(word));
        while (h-- > 0)
          x = x * 64 + 63 - static_cast<std::uint32_t>(std::countl_zero(levels_[h][x]));
        return x;
      }
      if (x < 64) return kNone;
      x = x / 64 - 1;
    }
    return kNone;
  }

 private:
  std::vector<std::vector<std::uint64_t>> levels_;  // the last has one word
};

}  // namespace berth::place
