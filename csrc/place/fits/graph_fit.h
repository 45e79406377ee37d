#pragma once

#include "csrc/place/problem/budget.h"
#include "csrc/place/problem/conflict_graph.h"

#include <optional>
#include <span>
#include <vector>

namespace berth::place {

// Offsets of all buffers, placed one by one in the order given, pins first, each into the lowest
// hole; nothing where the mark would not stay below `below`, or the budget (may be null) ends. What
// FirstFit does, many times faster where it is run again and again. O(conflicts log n).
[[nodiscard]] std::optional<std::vector<Bytes>> first_fit(const ConflictGraph& graph,
                                                          std::span<const Index> order, Bytes below,
                                                          const Budget* budget);

}  // namespace berth::place
