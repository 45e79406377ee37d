#pragma once

#include "csrc/place/problem/strip.h"

#include <cstdint>

namespace berth::place {

// The heaviest set of arcs of a ring that meet pairwise, strip.base included, if heavier than
// `known`: arcs that cover the ring between them need share no section (three of two thirds do
// not), so this can exceed the largest load. No placement of the strip is lower.
//
// Exact where it is within `work` looks at arcs, else what was found by then, which is a bound too.
// O(n log n) for each arc at whose ends enough lives; nothing where three arcs cannot go around.
[[nodiscard]] Bytes heaviest_arc_clique(const Strip& strip, Bytes known, std::uint64_t work);

}  // namespace berth::place
