#pragma once

#include "csrc/core/interval_map.h"

#include <vector>

namespace berth {

// Sets of bytes as lists of ranges: ascending, and none empty or touching the next.

// What lies in any of these ranges, whatever their order. O(n log n).
[[nodiscard]] std::vector<ByteRange> united(std::vector<ByteRange> ranges);

// What of `ranges` does not lie in `gone`. O(n + m).
[[nodiscard]] std::vector<ByteRange> without(const std::vector<ByteRange>& ranges,
                                             const std::vector<ByteRange>& gone);

}  // namespace berth
