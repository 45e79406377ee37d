#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace berth::place {

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

  // Opens all spans, with these ranks, one a span, each of [0, spans) once.
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
  // What a query looks at lies side by side: a point with its span's rank and state, a node with
  // its box, and two siblings in one cache line.
  struct Point {
    std::uint32_t first, last, span;
    std::uint32_t open_rank;  // kNone where it is not open
    State state;
  };
  struct Box {
    std::uint32_t first_min, first_max, last_min, last_max;
  };
  struct alignas(32) Node {
    Box box;
    std::uint32_t least_open;  // rank
    std::uint8_t states;       // those that occur below, or-ed
  };
  [[nodiscard]] std::pair<std::size_t, std::size_t> bucket(std::size_t leaf) const noexcept {
    return {leaf * points_.size() >> depth_, (leaf + 1) * points_.size() >> depth_};
  }
  void split(std::size_t node, std::size_t first, std::size_t last, bool by_first);
  void change(std::uint32_t span, State state);
  void refresh_leaf(std::size_t node) noexcept;
  // Whether any span is open with first >= begin and last <= end: half of all that best() is asked
  // for is not there.
  [[nodiscard]] bool has_open(std::uint32_t begin, std::uint32_t end) const noexcept;
  // First span of `state` bits with ranges of first and last as given (inclusive).
  [[nodiscard]] std::uint32_t any(std::uint8_t states, Box range) const;

  unsigned depth_ = 0;
  std::vector<Point> points_;
  std::vector<Node> nodes_;
  struct Place {
    std::uint32_t point, leaf;
    std::uint32_t order;  // by first
  };
  std::vector<Place> places_;  // of each span; two a span on a ring
  std::size_t copies_ = 1;
  std::vector<State> states_;
  std::vector<std::uint32_t> ranks_;
  std::vector<std::uint32_t> of_rank_;  // spans by rank
  // The least last of open points, a tree over the points by first; and how many begin before each
  // position.
  std::vector<std::uint32_t> least_last_;
  std::size_t least_last_leaves_ = 1;
  std::vector<std::uint32_t> before_;
};

}  // namespace berth::place
