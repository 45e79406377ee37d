#pragma once

#include "csrc/graph/graph.h"

#include <cstdint>

namespace berth::graph {

// By which a schedule knows its graph: of all that the graph holds, so equal graphs have equal ones
// whatever file they came from. Never 0. O(size).
[[nodiscard]] std::uint64_t hash_of(const Graph& graph) noexcept;

}  // namespace berth::graph
