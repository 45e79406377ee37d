#pragma once

#include "csrc/place/exact/exact_part.h"
#include "csrc/place/exact/exact_tree.h"
#include "csrc/place/problem/budget.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace berth::place {

// Whether a strip fits a capacity: exact search over its parts, each from the root again and again,
// in three orders, then noisy ones, with twice the nodes every third time. Can be continued; equal
// whatever the steps it is taken in.
class ExactSearch {
 public:
  // Larger parts are out of reach, and of memory.
  static constexpr std::size_t kMaxItems = 700;

  // The strip must outlive it. Requires max_load(strip) <= capacity.
  ExactSearch(const Strip& strip, Bytes capacity, std::uint64_t seed, const ExactRules& rules = {});

  // No part is larger than kMaxItems; otherwise the answer stays open.
  [[nodiscard]] bool within_reach() const noexcept { return parts_.largest <= kMaxItems; }
  [[nodiscard]] Bytes capacity() const noexcept { return capacity_; }

  // Goes on; `nodes` is what it may use, and what is left of it.
  Answer run(std::uint64_t& nodes, const Budget* budget);

  // After kFits: offsets of all items of the strip, strip.base included.
  [[nodiscard]] std::vector<Bytes> offsets() const;
  // After kRefuted: no placement of the strip ends lower.
  [[nodiscard]] Bytes least_mark() const noexcept { return parts_.capacity + parts_.unit; }

 private:
  struct Search {
    std::unique_ptr<ExactTree> tree;
    std::uint32_t round = 0;
    std::uint64_t left = 0;  // nodes of the round
    bool solved = false;
  };
  void start_round(Search& search, std::size_t items);

  const Strip& strip_;
  Bytes capacity_;
  std::uint64_t seed_;
  ExactParts parts_;
  std::vector<Search> searches_;  // one a part
  std::size_t current_ = 0;
};

}  // namespace berth::place
