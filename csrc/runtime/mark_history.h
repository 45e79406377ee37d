#pragma once

#include <array>
#include <cstdint>

namespace berth {

// What one lane asked for between its step marks, and whether that repeats: the same in the last p
// intervals as in the p before, for p up to kMostPattern (a mark after each of several optimizers).
//
// An interval is told by a hash of its requests. O(kMostPattern^2) a mark at worst, 2 KiB.
class MarkHistory {
 public:
  static constexpr std::uint32_t kMostPattern = 16;

  // The lane's next mark: the interval that it ends has so many requests of this hash, and began at
  // this position of the record.
  void mark(std::uint64_t hash, std::uint64_t requests, std::uint64_t began) noexcept {
    intervals_[marks_ % kKept] = {hash, requests, began};
    ++marks_;
  }
  [[nodiscard]] std::uint64_t marks() const noexcept { return marks_; }
  // Of the `back`-th interval before the last mark, 1 is the newest. Requires: back <= kept().
  [[nodiscard]] std::uint64_t hash(std::uint64_t back) const noexcept {
    return intervals_[(marks_ - back) % kKept].hash;
  }
  [[nodiscard]] std::uint64_t requests(std::uint64_t back) const noexcept {
    return intervals_[(marks_ - back) % kKept].requests;
  }
  [[nodiscard]] std::uint64_t began(std::uint64_t back) const noexcept {
    return intervals_[(marks_ - back) % kKept].began;
  }
  [[nodiscard]] std::uint64_t kept() const noexcept { return marks_ < kKept ? marks_ : kKept; }

  // The fewest intervals, two at least, after which all that are kept repeat; 0 where there are
  // none, or few are kept.
  [[nodiscard]] std::uint32_t cycle() const noexcept {
    if (kept() < kKept) return 0;
    for (std::uint32_t p = 2; p <= kMostPattern; ++p) {
      std::uint64_t back = 1;
      while (back + p <= kKept && hash(back) == hash(back + p)) ++back;
      if (back + p > kKept) return p;
    }
    return 0;
  }

  // The fewest intervals after which they repeat; 0 where they do not. Intervals without requests
  // are no steps.
  [[nodiscard]] std::uint32_t pattern() const noexcept {
    // mutant: learn-pattern
    for (std::uint32_t p = 1; 2 * p <= kept() && p <= kMostPattern; ++p) {
      bool equal = true, empty = true;
      for (std::uint32_t back = 1; equal && back <= p; ++back) {
        equal = hash(back) == hash(back + p);
        empty = empty && hash(back) == 0;
      }
      if (equal && !empty) return p;
    }
    return 0;
  }

 private:
  static constexpr std::uint64_t kKept = 4 * kMostPattern;
  struct Interval {
    std::uint64_t hash = 0, requests = 0, began = 0;
  };
  std::array<Interval, kKept> intervals_{};
  std::uint64_t marks_ = 0;
};

}  // namespace berth
