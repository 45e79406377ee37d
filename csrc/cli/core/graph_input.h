#pragma once

#include "csrc/graph/from_trace.h"

#include <string>

namespace berth::cli {

// A graph out of a file of a graph or out of a trace with operators, told by its content. Of a
// graph file nothing but the graph is there, and `steps` is 0. Throws Error(kInput) that names the
// file.
[[nodiscard]] graph::TracedGraph read_graph_input(const std::string& path);

}  // namespace berth::cli
