#pragma once

#include "csrc/plan/lookup.h"
#include "csrc/runtime/path.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace berth {

// The paths of each lane, sorted by the sizes of their requests, so that those that begin alike are
// neighbours: which other paths would have made the same requests up to here? Slots of buckets are
// all of one size here, and of no other.
//
// Immutable once built: O(sequences log sequences) comparisons, each from where two paths part.
class PathOrder {
 public:
  PathOrder() = default;
  // `paths`: of each sequence. Throws std::bad_alloc.
  PathOrder(const PlanLookup& lookup, const std::vector<Path>& paths);

  // Calls visit(sequence) for the other paths of its lane whose first `index` requests are those of
  // the path of `sequence`, the most alike first to either side, until it returns true. O(those).
  template <class Visit>
  void for_each_alike(std::uint32_t sequence, std::uint32_t index, Visit&& visit) const {
    const std::uint32_t place = place_[sequence];
    for (std::uint32_t at = place; at + 1 < order_.size() && alike_[at + 1] >= index + 1;) {
      if (visit(order_[++at])) return;
    }
    for (std::uint32_t at = place; at > 0 && alike_[at] >= index + 1;) {
      if (visit(order_[--at])) return;
    }
  }

  // Whether the first `count` requests of two paths of one lane are alike. O(paths between them).
  [[nodiscard]] bool begins_as(std::uint32_t a, std::uint32_t b, std::uint32_t count) const {
    std::uint32_t from = place_[a], to = place_[b];
    if (from > to) std::swap(from, to);
    while (from < to && alike_[from + 1] >= count + 1) ++from;
    return from == to;
  }

 private:
  std::vector<std::uint32_t> order_;  // sequences, lane by lane
  std::vector<std::uint32_t> place_;  // of each sequence in it
  // 1 + how many first requests the path at a place shares with the one before it; 0 where that is
  // another lane's.
  std::vector<std::uint32_t> alike_;
};

}  // namespace berth
