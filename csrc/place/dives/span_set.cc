#include "csrc/place/dives/span_set.h"

#include <algorithm>
#include <array>
#include <bit>

namespace berth::place {
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
      points_.push_back(
          {spans[i].first + copy * ring, spans[i].second + copy * ring, i, kNone, kGone});
  }
  depth_ = 0;
  while ((points_.size() >> depth_) > kBucket) ++depth_;
  nodes_.assign(std::size_t{2} << depth_, Node{Box{}, kNone, kGone});
  split(1, 0, points_.size(), true);
  places_.assign(spans.size() * copies_, {});
  std::vector<std::uint8_t> seen(spans.size(), 0);
  const auto leaves = std::uint32_t{1} << depth_;
  for (std::uint32_t leaf = 0; leaf < leaves; ++leaf) {
    const auto [first, last] = bucket(leaf);
    for (std::size_t p = first; p < last; ++p) {
      const std::uint32_t span = points_[p].span;
      places_[span * copies_ + seen[span]++] = {static_cast<std::uint32_t>(p), leaf + leaves, 0};
    }
  }
  std::uint32_t end = 0;
  for (const Point& point : points_) end = std::max(end, point.first + 1);
  before_.assign(std::size_t{end} + 1, 0);
  for (const Point& point : points_) ++before_[point.first + 1];
  for (std::uint32_t x = 0; x < end; ++x) before_[x + 1] += before_[x];
  std::vector<std::uint32_t> next(before_.begin(), before_.end() - 1);
  for (std::uint32_t p = 0; p < points_.size(); ++p) {
    for (std::size_t copy = 0; copy < copies_; ++copy) {
      Place& place = places_[points_[p].span * copies_ + copy];
      if (place.point == p) place.order = next[points_[p].first]++;
    }
  }
  least_last_leaves_ = std::bit_ceil(std::max<std::size_t>(points_.size(), 1));
  least_last_.assign(2 * least_last_leaves_, kNone);
  states_.assign(spans.size(), kGone);
  ranks_.assign(spans.size(), kNone);
  of_rank_.assign(spans.size(), kNone);
}

void SpanSet::split(std::size_t node, std::size_t first, std::size_t last, bool by_first) {
  Box box{kNone, 0, kNone, 0};
  for (std::size_t p = first; p < last; ++p) {
    const Point& point = points_[p];
    box = {std::min(box.first_min, point.first), std::max(box.first_max, point.first),
           std::min(box.last_min, point.last), std::max(box.last_max, point.last)};
  }
  nodes_[node].box = box;
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
  std::uint32_t least = kNone;
  std::uint8_t states = kGone;
  for (std::size_t p = first; p < last; ++p) {
    states |= points_[p].state;
    least = std::min(least, points_[p].open_rank);
  }
  nodes_[node].least_open = least;
  nodes_[node].states = states;
}

void SpanSet::open_all(std::span<const std::uint32_t> ranks) {
  std::copy(ranks.begin(), ranks.end(), ranks_.begin());
  for (std::uint32_t span = 0; span < ranks.size(); ++span) of_rank_[ranks[span]] = span;
  std::fill(states_.begin(), states_.end(), kOpen);
  for (Point& point : points_) {
    point.open_rank = ranks[point.span];
    point.state = kOpen;
  }
  for (const Place& place : places_)
    least_last_[least_last_leaves_ + place.order] = points_[place.point].last;
  for (std::size_t node = least_last_leaves_; node-- > 1;)
    least_last_[node] = std::min(least_last_[2 * node], least_last_[2 * node + 1]);
  const std::size_t leaves = std::size_t{1} << depth_;
  for (std::size_t node = leaves; node < 2 * leaves; ++node) refresh_leaf(node);
  for (std::size_t node = leaves; node-- > 1;) {
    const Node &a = nodes_[2 * node], &b = nodes_[2 * node + 1];
    nodes_[node].least_open = std::min(a.least_open, b.least_open);
    nodes_[node].states = static_cast<std::uint8_t>(a.states | b.states);
  }
}

void SpanSet::change(std::uint32_t span, State state) {
  states_[span] = state;
  for (std::size_t copy = 0; copy < copies_; ++copy) {
    const Place place = places_[span * copies_ + copy];
    points_[place.point].state = state;
    points_[place.point].open_rank = state == kOpen ? ranks_[span] : kNone;
    std::size_t node = place.order + least_last_leaves_;
    least_last_[node] = state == kOpen ? points_[place.point].last : kNone;
    while (node > 1) {
      node /= 2;
      const std::uint32_t last = std::min(least_last_[2 * node], least_last_[2 * node + 1]);
      if (last == least_last_[node]) break;
      least_last_[node] = last;
    }
    node = place.leaf;
    refresh_leaf(node);
    while (node > 1) {
      node /= 2;
      const Node &a = nodes_[2 * node], &b = nodes_[2 * node + 1];
      const std::uint32_t least = std::min(a.least_open, b.least_open);
      const auto states = static_cast<std::uint8_t>(a.states | b.states);
      if (least == nodes_[node].least_open && states == nodes_[node].states) break;
      nodes_[node].least_open = least;
      nodes_[node].states = states;
    }
  }
}

bool SpanSet::has_open(std::uint32_t begin, std::uint32_t end) const noexcept {
  if (begin >= before_.size()) return false;
  std::size_t l = before_[begin] + least_last_leaves_, r = 2 * least_last_leaves_;
  for (; l < r; l /= 2, r /= 2) {
    if (l % 2 == 1 && least_last_[l++] <= end) return true;
  }
  return false;
}

std::uint32_t SpanSet::best(std::uint32_t begin, std::uint32_t end) const {
  if (!has_open(begin, end)) return kNone;
  std::uint32_t least = kNone;
  std::array<std::uint32_t, 128> stack;
  std::size_t size = 0;
  const std::size_t leaves = std::size_t{1} << depth_;
  // Puts a node aside if it may hold something better; one that lies inside says so at once.
  const auto consider = [&](std::uint32_t node) {
    const Node& n = nodes_[node];
    if (n.least_open >= least || n.box.first_max < begin || n.box.last_min > end) return;
    if (n.box.first_min >= begin && n.box.last_max <= end) {
      least = n.least_open;
    } else {
      stack[size++] = node;
    }
  };
  consider(1);
  while (size > 0) {
    const std::uint32_t node = stack[--size];
    if (nodes_[node].least_open >= least) continue;
    if (node >= leaves) {
      const auto [first, last] = bucket(node - leaves);
      for (std::size_t p = first; p < last; ++p) {
        const Point& point = points_[p];
        if (point.open_rank < least && point.first >= begin && point.last <= end)
          least = point.open_rank;
      }
      continue;
    }
    // The better child on top of the stack.
    const std::uint32_t left = 2 * node, right = left + 1;
    const bool left_first = nodes_[left].least_open <= nodes_[right].least_open;
    consider(left_first ? right : left);
    consider(left_first ? left : right);
  }
  return least == kNone ? kNone : of_rank_[least];
}

std::uint32_t SpanSet::any(std::uint8_t states, Box range) const {
  std::array<std::uint32_t, 128> stack;
  std::size_t size = 0;
  const std::size_t leaves = std::size_t{1} << depth_;
  const auto consider = [&](std::uint32_t node) {
    const Node& n = nodes_[node];
    if ((n.states & states) != 0 && n.box.first_max >= range.first_min &&
        n.box.first_min <= range.first_max && n.box.last_max >= range.last_min &&
        n.box.last_min <= range.last_max)
      stack[size++] = node;
  };
  consider(1);
  while (size > 0) {
    const std::uint32_t node = stack[--size];
    if (node >= leaves) {
      const auto [first, last] = bucket(node - leaves);
      for (std::size_t p = first; p < last; ++p) {
        const Point& point = points_[p];
        if ((point.state & states) != 0 && point.first >= range.first_min &&
            point.first <= range.first_max && point.last >= range.last_min &&
            point.last <= range.last_max)
          return point.span;
      }
      continue;
    }
    consider(2 * node + 1);
    consider(2 * node);
  }
  return kNone;
}

std::uint32_t SpanSet::any_over(std::uint32_t x, std::uint32_t begin, std::uint32_t end) const {
  return any(kOpen | kDeferred, {begin, x, x + 1, end});
}

std::uint32_t SpanSet::any_deferred(std::uint32_t begin, std::uint32_t end) const {
  return any(kDeferred, {begin, kNone, 0, end});
}

}  // namespace berth::place
