#pragma once

#include "csrc/core/bytes.h"
#include "csrc/core/interval_map.h"
#include "csrc/plan/offset_table.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace berth {

// For each byte of an arena, when the last block there ends: what a sweep over time asks at every
// birth, "is anything that touches these bytes still alive?".
//
// An address-ordered tree over the ranges between given boundaries. Ends need never be removed: one
// that is not later than the present is a block that has gone. raise() and max() are O(log n).
class EndTree {
 public:
  // An end and who ends then, ordered by end; 0 is nobody. Ends are below 2^40, slots below 2^24.
  using Value = std::uint64_t;
  static constexpr Value value(std::uint64_t end, std::uint32_t slot) noexcept {
    return end << 24 | slot;
  }
  static constexpr std::uint64_t end_of(Value value) noexcept { return value >> 24; }
  static constexpr std::uint32_t slot_of(Value value) noexcept {
    return static_cast<std::uint32_t>(value & 0xFFFFFF);
  }

  // Some of the ranges between boundaries, [first, last).
  struct Span {
    std::size_t first = 0, last = 0;
  };

  // Boundaries are multiples of `alignment`, in any order, as often as they come.
  EndTree(const std::vector<Bytes>& boundaries, Bytes alignment) : ranks_(alignment) {
    for (const Bytes boundary : boundaries) {
      ranks_.insert(boundary, 0);
      if (ranks_.size() > boundaries_.size()) boundaries_.push_back(boundary);
    }
    std::sort(boundaries_.begin(), boundaries_.end());
    for (std::size_t rank = 0; rank < boundaries_.size(); ++rank) {
      ranks_.renumber(boundaries_[rank], static_cast<std::uint32_t>(rank));
    }
    leaves_ = std::bit_ceil(std::max<std::size_t>(1, ranges()));
    nodes_.resize(2 * leaves_);
  }

  // A range that lies between two boundaries. O(1).
  [[nodiscard]] Span own_span(ByteRange range) const noexcept {
    return {ranks_.find(range.first), ranks_.find(range.last)};
  }

  // All that touches any range. O(log n).
  [[nodiscard]] Span span(ByteRange range) const noexcept {
    const auto begin = boundaries_.begin();
    const auto first = std::upper_bound(begin, boundaries_.end(), range.first);
    const auto last = std::lower_bound(first, boundaries_.end(), range.last);
    return {first == begin ? 0 : static_cast<std::size_t>(first - begin) - 1,
            std::min(static_cast<std::size_t>(last - begin), ranges())};
  }

  // The latest end in a span.
  [[nodiscard]] Value max(Span span) const noexcept {
    if (span.first >= span.last) return 0;
    std::size_t low = span.first + leaves_, high = span.last + leaves_;
    Value latest = 0;
    // Ends that were raised over whole subtrees above the span, on two ways that meet.
    std::size_t left = low >> 1, right = (high - 1) >> 1;
    for (; left != right; left >>= 1, right >>= 1) {
      latest = std::max({latest, nodes_[left].all, nodes_[right].all});
    }
    for (; left != 0; left >>= 1) latest = std::max(latest, nodes_[left].all);
    for (; low < high; low >>= 1, high >>= 1) {
      if (low & 1) latest = std::max(latest, nodes_[low++].any);
      if (high & 1) latest = std::max(latest, nodes_[--high].any);
    }
    return latest;
  }

  // Nowhere in a span does the last block end before `to` from now on.
  void raise(Span span, Value to) noexcept {
    if (span.first >= span.last) return;
    std::size_t low = span.first + leaves_, high = span.last + leaves_;
    for (; low < high; low >>= 1, high >>= 1) {
      if (low & 1) cover(low++, to);
      if (high & 1) cover(--high, to);
    }
  }

 private:
  struct Node {
    Value any = 0;  // latest end in the subtree
    Value all = 0;  // raised over all of the subtree
  };

  [[nodiscard]] std::size_t ranges() const noexcept {
    return boundaries_.empty() ? 0 : boundaries_.size() - 1;
  }

  void cover(std::size_t node, Value to) noexcept {
    nodes_[node].all = std::max(nodes_[node].all, to);
    // What is above knows of later ends already where one node of the way does.
    for (; node != 0 && nodes_[node].any < to; node >>= 1) nodes_[node].any = to;
  }

  OffsetTable ranks_;  // of boundaries
  std::vector<Bytes> boundaries_;
  std::size_t leaves_ = 1;
  std::vector<Node> nodes_;
};

}  // namespace berth
