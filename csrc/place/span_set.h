#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace berth::packing {

// Spans [first, last) with a rank each: finds the least rank inside a window, and any span over a
// point inside a window. A k-d tree over (first, last), implicit, with buckets of a few spans.
//
// A span is open (for best()), or deferred, or gone; the first two are alive (for any_over()).
// Built once in O(n log n); a query visits O(sqrt n) nodes at worst, O(log n) as a rule; a change
// O(log n). On a ring of m sections every span is stored once more, m further, and windows may
// begin in the first round and end in the second.
class SpanSet {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  // `ring`: sections of a round, 0 on a line.
  void build(std::span<const std::pair<std::uint32_t, std::uint32_t>> spans, std::uint32_t ring);

  // Opens all spans, with these ranks, one a span, below kNone.
  void open_all(std::span<const std::uint32_t> ranks);

  void defer(std::uint32_t span) { change(span, kDeferred); }
  void reopen(std::uint32_t span) { change(span, kOpen); }
  void remove(std::uint32_t span) { change(span, kGone); }
  [[nodiscard]] bool is_alive(std::uint32_t span) const noexcept { return states_[span] != kGone; }

  // The open span of least rank with first >= begin and last <= end, or kNone.
  [[nodiscard]] std::uint32_t best(std::uint32_t begin, std::uint32_t end) const;
  // Some alive span with begin <= first <= x < last <= end, or kNone.
  [[nodiscard]] std::uint32_t any_over(std::uint32_t x, std::uint32_t begin,
                                       std::uint32_t end) const;
  // Some deferred span with first >= begin and last <= end, or kNone.
  [[nodiscard]] std::uint32_t any_deferred(std::uint32_t begin, std::uint32_t end) const;

 private:
  enum State : std::uint8_t { kGone = 0, kOpen = 1, kDeferred = 2 };
  struct Point {
    std::uint32_t first, last, span;
  };
  struct Box {
    std::uint32_t first_min, first_max, last_min, last_max;
  };
  struct Node {
    std::uint32_t least_open;  // rank
    std::uint8_t states;       // those that occur below, or-ed
  };
  [[nodiscard]] std::pair<std::size_t, std::size_t> bucket(std::size_t leaf) const noexcept {
    return {leaf * points_.size() >> depth_, (leaf + 1) * points_.size() >> depth_};
  }
  void split(std::size_t node, std::size_t first, std::size_t last, bool by_first);
  void change(std::uint32_t span, State state);
  void refresh_leaf(std::size_t node) noexcept;
  // First span of `state` bits with ranges of first and last as given (inclusive).
  [[nodiscard]] std::uint32_t any(std::uint8_t states, Box range) const;

  unsigned depth_ = 0;
  std::vector<Point> points_;
  std::vector<Box> boxes_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> leaves_;  // of each span; two a span on a ring
  std::size_t copies_ = 1;
  std::vector<std::uint8_t> states_;
  std::vector<std::uint32_t> ranks_;
};

}  // namespace berth::packing
