#include "csrc/place/span_set.h"

#include <algorithm>
#include <array>

namespace berth::packing {
namespace {

constexpr std::size_t kBucket = 6;

}  // namespace

void SpanSet::build(std::span<const std::pair<std::uint32_t, std::uint32_t>> spans,
                    std::uint32_t ring) {
  copies_ = ring == 0 ? 1 : 2;
  points_.clear();
  points_.reserve(spans.size() * copies_);
  for (std::uint32_t i = 0; i < spans.size(); ++i) {
    for (std::uint32_t copy = 0; copy < copies_; ++copy)
      points_.push_back({spans[i].first + copy * ring, spans[i].second + copy * ring, i});
  }
  depth_ = 0;
  while ((points_.size() >> depth_) > kBucket) ++depth_;
  boxes_.assign(std::size_t{2} << depth_, Box{});
  nodes_.assign(std::size_t{2} << depth_, Node{kNone, kGone});
  split(1, 0, points_.size(), true);
  leaves_.assign(spans.size() * copies_, 0);
  std::vector<std::uint8_t> seen(spans.size(), 0);
  for (std::size_t leaf = 0; leaf < (std::size_t{1} << depth_); ++leaf) {
    const auto [first, last] = bucket(leaf);
    for (std::size_t p = first; p < last; ++p) {
      const std::uint32_t span = points_[p].span;
      leaves_[span * copies_ + seen[span]++] =
          static_cast<std::uint32_t>(leaf + (std::size_t{1} << depth_));
    }
  }
  states_.assign(spans.size(), kGone);
  ranks_.assign(spans.size(), kNone);
}

void SpanSet::split(std::size_t node, std::size_t first, std::size_t last, bool by_first) {
  Box box{kNone, 0, kNone, 0};
  for (std::size_t p = first; p < last; ++p) {
    const Point& point = points_[p];
    box = {std::min(box.first_min, point.first), std::max(box.first_max, point.first),
           std::min(box.last_min, point.last), std::max(box.last_max, point.last)};
  }
  boxes_[node] = box;
  if ((node >> depth_) != 0) return;
  // The middle as bucket() has it: node n of level d holds [t * size >> d, (t + 1) * size >> d).
  unsigned level = 0;
  while ((node >> level) > 1) ++level;
  const std::size_t t = node - (std::size_t{1} << level);
  const std::size_t middle = (2 * t + 1) * points_.size() >> (level + 1);
  const auto begin = points_.begin();
  std::nth_element(
      begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(middle),
      begin + static_cast<std::ptrdiff_t>(last), [&](const Point& a, const Point& b) {
        const auto key = [&](const Point& point) { return by_first ? point.first : point.last; };
        return key(a) != key(b) ? key(a) < key(b) : a.span < b.span;
      });
  split(2 * node, first, middle, !by_first);
  split(2 * node + 1, middle, last, !by_first);
}

void SpanSet::refresh_leaf(std::size_t node) noexcept {
  const auto [first, last] = bucket(node - (std::size_t{1} << depth_));
  Node fresh{kNone, kGone};
  for (std::size_t p = first; p < last; ++p) {
    const std::uint32_t span = points_[p].span;
    fresh.states |= states_[span];
    if (states_[span] == kOpen) fresh.least_open = std::min(fresh.least_open, ranks_[span]);
  }
  nodes_[node] = fresh;
}

void SpanSet::open_all(std::span<const std::uint32_t> ranks) {
  std::copy(ranks.begin(), ranks.end(), ranks_.begin());
  std::fill(states_.begin(), states_.end(), kOpen);
  const std::size_t leaves = std::size_t{1} << depth_;
  for (std::size_t node = leaves; node < 2 * leaves; ++node) refresh_leaf(node);
  for (std::size_t node = leaves; node-- > 1;) {
    nodes_[node] = {
        std::min(nodes_[2 * node].least_open, nodes_[2 * node + 1].least_open),
        static_cast<std::uint8_t>(nodes_[2 * node].states | nodes_[2 * node + 1].states)};
  }
}

void SpanSet::change(std::uint32_t span, State state) {
  states_[span] = state;
  for (std::size_t copy = 0; copy < copies_; ++copy) {
    std::size_t node = leaves_[span * copies_ + copy];
    refresh_leaf(node);
    while (node > 1) {
      node /= 2;
      const Node &a = nodes_[2 * node], &b = nodes_[2 * node + 1];
      const Node fresh{std::min(a.least_open, b.least_open),
                       static_cast<std::uint8_t>(a.states | b.states)};
      if (fresh.least_open == nodes_[node].least_open && fresh.states == nodes_[node].states) break;
      nodes_[node] = fresh;
    }
  }
}

std::uint32_t SpanSet::best(std::uint32_t begin, std::uint32_t end) const {
  std::uint32_t least = kNone, found = kNone;
  std::array<std::uint32_t, 128> stack;
  std::size_t size = 0;
  stack[size++] = 1;
  const std::size_t leaves = std::size_t{1} << depth_;
  while (size > 0) {
    const std::uint32_t node = stack[--size];
    if (nodes_[node].least_open >= least) continue;
    const Box& box = boxes_[node];
    if (box.first_max < begin || box.last_min > end) continue;
    if (node >= leaves) {
      const auto [first, last] = bucket(node - leaves);
      for (std::size_t p = first; p < last; ++p) {
        const Point& point = points_[p];
        if (point.first < begin || point.last > end || states_[point.span] != kOpen) continue;
        if (ranks_[point.span] < least) {
          least = ranks_[point.span];
          found = point.span;
        }
      }
      continue;
    }
    // The better child on top of the stack.
    const std::uint32_t left = 2 * node, right = left + 1;
    const bool left_first = nodes_[left].least_open <= nodes_[right].least_open;
    stack[size++] = left_first ? right : left;
    stack[size++] = left_first ? left : right;
  }
  return found;
}

std::uint32_t SpanSet::any(std::uint8_t states, Box range) const {
  std::array<std::uint32_t, 128> stack;
  std::size_t size = 0;
  stack[size++] = 1;
  const std::size_t leaves = std::size_t{1} << depth_;
  while (size > 0) {
    const std::uint32_t node = stack[--size];
    if ((nodes_[node].states & states) == 0) continue;
    const Box& box = boxes_[node];
    if (box.first_max < range.first_min || box.first_min > range.first_max ||
        box.last_max < range.last_min || box.last_min > range.last_max)
      continue;
    if (node >= leaves) {
      const auto [first, last] = bucket(node - leaves);
      for (std::size_t p = first; p < last; ++p) {
        const Point& point = points_[p];
        if ((states_[point.span] & states) != 0 && point.first >= range.first_min &&
            point.first <= range.first_max && point.last >= range.last_min &&
            point.last <= range.last_max)
          return point.span;
      }
      continue;
    }
    stack[size++] = 2 * node + 1;
    stack[size++] = 2 * node;
  }
  return kNone;
}

std::uint32_t SpanSet::any_over(std::uint32_t x, std::uint32_t begin, std::uint32_t end) const {
  return any(kOpen | kDeferred, {begin, x, x + 1, end});
}

std::uint32_t SpanSet::any_deferred(std::uint32_t begin, std::uint32_t end) const {
  return any(kDeferred, {begin, kNone, 0, end});
}

}  // namespace berth::packing
