#pragma once

#include "csrc/place/fits/first_fit.h"
#include "csrc/place/problem/conflicts.h"

#include <vector>

namespace berth::place {

// The longest lifetime, on it the longest that lies within it, and so on: none can share bytes, and
// they are what is alive longest. In the order from offset 0 up; pinned buffers are left out, and
// but for one lane without branches it is empty.
[[nodiscard]] std::vector<Index> pyramid(const Conflicts& conflicts);

// The order of first fit that builds on it: the pyramid, then the others by size.
[[nodiscard]] std::vector<Index> pyramid_order(const Conflicts& conflicts,
                                               const FirstFit& first_fit);

}  // namespace berth::place
