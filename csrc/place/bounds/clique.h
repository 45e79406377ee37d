#pragma once

#include "csrc/place/problem/conflict_graph.h"
#include "csrc/place/problem/conflicts.h"

#include <cstddef>
#include <cstdint>

namespace berth::place {

// The largest sum of sizes of buffers that all conflict with each other, as far as a search of so
// many nodes finds it (branch and bound, the heaviest candidates first): what any clique weighs is
// a lower bound on the mark, whether it is the heaviest or not. Nothing below `known` is looked at,
// which is what it gives where it finds nothing heavier.
//
// Cliques that no tick shows: arcs that cover a circle between them, lanes that meet pairwise.
// O(n^2) a node at worst, and only what is left after dropping all that is too light with all its
// neighbours; problems of which more than kMaxCliqueBuffers are left are left alone.
inline constexpr std::size_t kMaxCliqueBuffers = 1024;
[[nodiscard]] Bytes heavy_clique(const Conflicts& conflicts, const ConflictGraph& graph,
                                 Bytes known, std::uint64_t nodes);

}  // namespace berth::place
