#pragma once

#include "csrc/graph/graph.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace berth::graph {

// Graphs as binary files: a section of the frame of plan files (plans/README.md), data only. The
// JSON of file.h holds the same, for people.

// Reads a graph. Trusts nothing: throws Error(kInput), naming the file and the reason, for damage,
// counts above the caps of Graph, and what violation() finds.
[[nodiscard]] Graph parse_graph_file(std::span<const std::byte> data, const std::string& name);

// The bytes of a graph's file: equal ones for equal graphs. Throws Error(kUsage) for what
// violation() finds, and for what is too large for a file.
[[nodiscard]] std::vector<std::byte> serialize_graph(const Graph& graph);

}  // namespace berth::graph
