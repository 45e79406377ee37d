#pragma once

#include "csrc/core/interval_map.h"

#include <vector>

namespace berth {

// Sets of bytes as lists of ranges: ascending, and none empty or touching the next.

// Adds a range to such a list, where none that was added begins behind it; else to a list that
// united() takes. O(1).
inline void add_united(std::vector<ByteRange>& ranges, ByteRange range) {
  if (!ranges.empty() && ranges.back().first <= range.first && range.first <= ranges.back().last)
    ranges.back().last = range.last > ranges.back().last ? range.last : ranges.back().last;
  else
    ranges.push_back(range);
}

// What lies in any of these ranges, whatever their order. O(n log n), O(n) where they ascend.
[[nodiscard]] std::vector<ByteRange> united(std::vector<ByteRange> ranges);

// What of `ranges` does not lie in `gone`. O(n + m).
[[nodiscard]] std::vector<ByteRange> without(const std::vector<ByteRange>& ranges,
                                             const std::vector<ByteRange>& gone);

// What lies in both. O(n + m).
[[nodiscard]] std::vector<ByteRange> common(const std::vector<ByteRange>& a,
                                            const std::vector<ByteRange>& b);

}  // namespace berth
