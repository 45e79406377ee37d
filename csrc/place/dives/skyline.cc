#include "csrc/place/dives/skyline.h"

#include <algorithm>
#include <bit>

namespace berth::place {
namespace {

constexpr auto kLower = [](const auto& a, const auto& b) {
  return a.floor != b.floor ? a.floor > b.floor : a.start > b.start;
};

}  // namespace

void Skyline::reset(std::uint32_t sections, bool ring) {
  sections_ = sections;
  ring_ = ring;
  starts_.reset(sections);
  leaves_ = std::bit_ceil(std::size_t{sections});
  tree_.assign(2 * leaves_, -1);
  heap_.clear();
  plateaus_ = 0;
  set_start(0, 0);
}

void Skyline::update(std::uint32_t x, Floor value) noexcept {
  std::size_t p = x + leaves_;
  tree_[p] = value;
  while (p > 1) {
    p /= 2;
    const Floor most = std::max(tree_[2 * p], tree_[2 * p + 1]);
    if (tree_[p] == most) return;
    tree_[p] = most;
  }
}

void Skyline::push(std::uint32_t start, Floor floor) {
  heap_.push_back({floor, start});
  std::push_heap(heap_.begin(), heap_.end(), kLower);
}

void Skyline::set_start(std::uint32_t x, Floor floor) {
  if (!starts_.contains(x)) {
    starts_.insert(x);
    ++plateaus_;
  }
  update(x, floor);
  push(x, floor);
}

void Skyline::clear_start(std::uint32_t x) {
  starts_.erase(x);
  --plateaus_;
  update(x, -1);
}

std::uint32_t Skyline::start_of(std::uint32_t x) const noexcept {
  const std::uint32_t start = starts_.previous(x);
  return start != BitSet::kNone ? start : starts_.previous(sections_ - 1);
}

// In the round of `start` or the one behind it.
std::uint32_t Skyline::next_start(std::uint32_t start) const noexcept {
  const std::uint32_t next = start + 1 < sections_ ? starts_.next(start + 1) : BitSet::kNone;
  if (next != BitSet::kNone) return next;
  return ring_ ? sections_ + starts_.next(0) : sections_;
}

Skyline::Plateau Skyline::lowest() {
  while (!starts_.contains(heap_.front().start) ||
         tree_[heap_.front().start + leaves_] != heap_.front().floor) {
    std::pop_heap(heap_.begin(), heap_.end(), kLower);
    heap_.pop_back();
  }
  const Entry entry = heap_.front();
  return {entry.start, next_start(entry.start), entry.floor};
}

Skyline::Floor Skyline::lower_neighbour(const Plateau& plateau) const noexcept {
  const bool has_left = ring_ || plateau.first > 0;
  const bool has_right = ring_ || plateau.last < sections_;
  const Floor left =
      has_left ? tree_[start_of(plateau.first == 0 ? sections_ - 1 : plateau.first - 1) + leaves_]
               : 0;
  const Floor right = has_right ? tree_[wrap(plateau.last) + leaves_] : 0;
  if (!has_left) return right;
  if (!has_right) return left;
  return std::min(left, right);
}

void Skyline::raise(const Plateau& plateau, std::uint32_t first, std::uint32_t last, Floor floor) {
  const bool round = ring_ && plateaus_ == 1;  // the plateau is the whole ring
  if (round && last - first == sections_) {
    update(plateau.first, floor);
    push(plateau.first, floor);
    return;
  }
  // What stays low on the right, unless the next plateau follows at once.
  const bool right_rest = round || last < plateau.last;
  const bool left_rest = !round && first > plateau.first;
  if (round) clear_start(plateau.first);
  if (right_rest) set_start(wrap(last), plateau.floor);
  const std::uint32_t start = wrap(first);
  bool merged_left = false;
  if (!left_rest && !round && (ring_ || first > 0)) {
    const std::uint32_t left = start_of(start == 0 ? sections_ - 1 : start - 1);
    if (left != start && tree_[left + leaves_] == floor) {
      clear_start(start);
      merged_left = true;
    }
  }
  if (!merged_left) set_start(start, floor);
  if (!right_rest && (ring_ || last < sections_)) {
    const std::uint32_t right = wrap(last);
    // On a ring the last two plateaus may become one.
    if (plateaus_ > 1 && tree_[right + leaves_] == floor && starts_.contains(right))
      clear_start(right);
  }
}

Skyline::Floor Skyline::highest_start(std::uint32_t first, std::uint32_t last) const noexcept {
  Floor most = -1;
  std::size_t l = first + leaves_, r = last + leaves_;
  for (; l < r; l /= 2, r /= 2) {
    if (l % 2 == 1) most = std::max(most, tree_[l++]);
    if (r % 2 == 1) most = std::max(most, tree_[--r]);
  }
  return most;
}

Skyline::Floor Skyline::highest(std::uint32_t first, std::uint32_t last) const noexcept {
  if (first >= sections_) {
    first -= sections_;
    last -= sections_;
  }
  const Floor own = tree_[start_of(first) + leaves_];
  if (last <= sections_) return std::max(own, highest_start(first + 1, last));
  return std::max({own, highest_start(first + 1, sections_), tree_[start_of(0) + leaves_],
                   highest_start(0, last - sections_)});
}

std::uint32_t Skyline::next_start_above(std::uint32_t x, Floor limit) const noexcept {
  std::size_t p = x + leaves_;
  if (tree_[p] <= limit) {
    for (;; p /= 2) {
      if (p == 1) return BitSet::kNone;
      if (p % 2 == 0 && tree_[p + 1] > limit) break;
    }
    ++p;
    while (p < leaves_) p = tree_[2 * p] > limit ? 2 * p : 2 * p + 1;
  }
  return static_cast<std::uint32_t>(p - leaves_);
}

std::uint32_t Skyline::previous_start_above(std::uint32_t x, Floor limit) const noexcept {
  std::size_t p = x + leaves_;
  if (tree_[p] <= limit) {
    for (;; p /= 2) {
      if (p == 1) return BitSet::kNone;
      if (p % 2 == 1 && tree_[p - 1] > limit) break;
    }
    --p;
    while (p < leaves_) p = tree_[2 * p + 1] > limit ? 2 * p + 1 : 2 * p;
  }
  return static_cast<std::uint32_t>(p - leaves_);
}

Skyline::Stretch Skyline::low_around(std::uint32_t x, std::uint32_t begin, std::uint32_t end,
                                     Floor limit) const noexcept {
  // Sections count from x's own round, `shift` from the first.
  const std::uint32_t shift = x >= sections_ ? sections_ : 0;
  const std::uint32_t at = x - shift;
  Stretch range{begin, end};
  std::uint32_t high = next_start_above(at, limit);
  if (high != BitSet::kNone) {
    range.last = std::min(end, high + shift);
  } else if (ring_ && shift == 0 && end > sections_) {
    // The plateau over the seam is low: its start lies at most at x, or its floor counts above.
    high = next_start_above(0, limit);
    if (high != BitSet::kNone) range.last = std::min(end, high + sections_);
  }
  std::uint32_t low = previous_start_above(at, limit);
  if (low != BitSet::kNone) {
    range.first = std::max(begin, next_start(low) + shift);
    return range;
  }
  if (ring_ && begin < shift) {
    low = previous_start_above(sections_ - 1, limit);
    if (low != BitSet::kNone) range.first = std::max(begin, next_start(low));
  } else if (ring_ && tree_[start_of(0) + leaves_] > limit) {
    // The plateau that comes over the seam ends at the round's first start.
    range.first = std::max(begin, starts_.next(0) + shift);
  }
  return range;
}

}  // namespace berth::place
