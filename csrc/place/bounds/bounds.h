#pragma once

#include "csrc/place/problem/conflicts.h"

#include <vector>

namespace berth::place {

// The largest sum of sizes alive at one tick: of one path of one lane, with what a step of another
// may have left alive, the largest; of lanes that edges join a consistent cut through all; over
// groups of lanes the sum; and where pins end. No placement has a lower high-water mark. O(n log n)
// but for branches, where a path costs its length, and cuts (see heaviest_cut()).
[[nodiscard]] Bytes max_load(const Conflicts& conflicts);

// For each buffer, the largest sum of sizes of its lane alive at one tick of its lifetime (paths
// are not told apart). O(n log n).
[[nodiscard]] std::vector<Bytes> largest_loads(const Conflicts& conflicts);

}  // namespace berth::place
