#pragma once

#include "csrc/graph/graph.h"

#include <string>

namespace berth::cli {

// Writes a graph: as JSON where the name ends in .json, else as the binary file. Throws as
// write_output() does.
void write_graph_output(const std::string& path, const graph::Graph& graph);

// Whether a name is that of a graph: it ends in .graph or .json.
[[nodiscard]] bool is_graph_name(const std::string& path);

}  // namespace berth::cli
