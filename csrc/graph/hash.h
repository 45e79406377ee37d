#pragma once

#include "csrc/graph/graph.h"

#include <berth/referee.h>

#include <cstdint>
#include <string>
#include <vector>

namespace berth::graph {

// By which a schedule knows its graph: of all that the graph holds, so equal graphs have equal ones
// whatever file they came from. Never 0. O(size).
[[nodiscard]] std::uint64_t hash_of(const Graph& graph) noexcept;

// The identities of the graph's operators, by their first alternatives. Equal ones at all places
// mean that a schedule of the one graph is one of the other, as far as it depends on what operators
// take and make. O(size).
[[nodiscard]] std::vector<OperatorIdentity> identities_of(const Graph& graph);
// What is first different between the step that the schedule is for and the graph, in words; empty
// where nothing is, or the schedule does not say. O(size).
[[nodiscard]] std::string difference(const Schedule& schedule, const Graph& graph);

}  // namespace berth::graph
