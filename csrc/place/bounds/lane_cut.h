#pragma once

#include "csrc/place/problem/conflicts.h"

#include <cstdint>
#include <span>

namespace berth::place {

// The most bytes that lanes which edges join hold at one consistent cut: a moment of each, such
// that no moment's past holds what comes behind another's. All that lives at such moments
// conflicts, so no placement has a lower mark. On lines this is the heaviest set of buffers that no
// two are ordered of (by duality the least flow that carries every buffer from its birth to its
// end); on circles cuts reach over a few steps.
//
// For problems without branches. A maximum closure by a maximum flow over the edges' ends: as a
// rule near O(buffers log + edges), at worst far more, so 0 where the edges are many or the flow
// takes too long.
[[nodiscard]] Bytes heaviest_cut(const Conflicts& conflicts, std::span<const std::uint32_t> lanes);

}  // namespace berth::place
