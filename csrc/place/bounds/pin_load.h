#pragma once

#include "csrc/place/problem/strip.h"

#include <cstdint>

namespace berth::place {

// The least mark that the sections of a strip with obstacles allow, if more than `known`: below the
// topmost obstacle of a section its items fill each gap at most up to the largest sum of some of
// their sizes that fits, and the rest lies above. No placement of the strip is lower.
//
// Subset sums by bit sets, in units of the sizes' greatest common divisor: gaps beyond 2^20 units
// count as filled, and after `work` words the rest of the sections is not looked at.
[[nodiscard]] Bytes load_around_obstacles(const Strip& strip, Bytes known, std::uint64_t work);

}  // namespace berth::place
