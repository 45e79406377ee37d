#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace berth::place {

// Numbers at positions [0, n): add to a range, largest of a range, nearest above a value. A segment
// tree without push-down (sums stay at their nodes): everything O(log n) and without recursion.
class NeedTree {
 public:
  using Value = std::int64_t;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  // Positions are shifted by one, so that both ends have a neighbour.
  void reset(std::span<const Value> values) {
    leaves_ = std::bit_ceil(values.size() + 2);
    nodes_.assign(2 * leaves_, {kLow, 0});
    for (std::size_t i = 0; i < values.size(); ++i) nodes_[leaves_ + 1 + i].most = values[i];
    for (std::size_t p = leaves_; p-- > 1;) pull(p);
  }

  void add(std::uint32_t first, std::uint32_t last, Value value) noexcept {
    if (first >= last) return;
    std::size_t l = first + leaves_, r = last + 1 + leaves_;
    while ((l ^ r) != 1) {
      if (l % 2 == 0) apply(l ^ 1, value);
      if (r % 2 == 1) apply(r ^ 1, value);
      pull(l /= 2);
      pull(r /= 2);
    }
    while (l > 1) pull(l /= 2);
  }

  [[nodiscard]] Value max(std::uint32_t first, std::uint32_t last) const noexcept {
    if (first >= last) return kLow;
    std::size_t l = first + leaves_, r = last + 1 + leaves_;
    Value left = kLow, right = kLow;
    while ((l ^ r) != 1) {
      if (l % 2 == 0) left = std::max(left, nodes_[l ^ 1].most);
      if (r % 2 == 1) right = std::max(right, nodes_[r ^ 1].most);
      left += nodes_[l /= 2].added;
      right += nodes_[r /= 2].added;
    }
    Value result = std::max(left, right);
    while (l > 1) result += nodes_[l /= 2].added;
    return result;
  }

  [[nodiscard]] Value at(std::uint32_t x) const noexcept {
    std::size_t p = x + 1 + leaves_;
    Value result = nodes_[p].most;
    while (p > 1) result += nodes_[p /= 2].added;
    return result;
  }

  // The smallest position >= x (largest <= x) with a number above `value`, or kNone.
  [[nodiscard]] std::uint32_t next_above(std::uint32_t x, Value value) const noexcept {
    return search(x + 1 + leaves_, value, 0);
  }
  [[nodiscard]] std::uint32_t previous_above(std::uint32_t x, Value value) const noexcept {
    return search(x + 1 + leaves_, value, 1);
  }

 private:
  // Far below all sums, and far from overflow after the deepest of them.
  static constexpr Value kLow = -(Value{1} << 62);
  struct Node {
    Value most;   // of the subtree, `added` included
    Value added;  // to all of the subtree
  };
  void apply(std::size_t p, Value value) noexcept {
    nodes_[p].most += value;
    nodes_[p].added += value;
  }
  void pull(std::size_t p) noexcept {
    nodes_[p].most = std::max(nodes_[2 * p].most, nodes_[2 * p + 1].most) + nodes_[p].added;
  }

  // From leaf p towards the side that `side` is not: 0 looks right, 1 looks left.
  [[nodiscard]] std::uint32_t search(std::size_t p, Value value, std::size_t side) const noexcept {
    // What the value is, seen from inside the leaf, then inside each node on the way up.
    Value rest = value;
    for (std::size_t q = p / 2; q > 0; q /= 2) rest -= nodes_[q].added;
    if (nodes_[p].most <= rest) {
      for (;; p /= 2) {
        if (p == 1) return kNone;
        if (p % 2 == side && nodes_[p ^ 1].most > rest) break;
        rest += nodes_[p / 2].added;
      }
      p ^= 1;
    }
    while (p < leaves_) {
      rest -= nodes_[p].added;
      p = 2 * p + side;
      if (nodes_[p].most <= rest) p ^= 1;
    }
    return static_cast<std::uint32_t>(p - leaves_ - 1);
  }

  std::size_t leaves_ = 1;
  std::vector<Node> nodes_;
};

}  // namespace berth::place
