#pragma once

#include "csrc/graph/graph.h"

#include <string>
#include <string_view>

namespace berth::graph {

inline constexpr std::string_view kFormat = "berth-graph 1";

// The forms that are read, for messages and help: berth's own, and those of other_forms().
[[nodiscard]] std::string graph_forms();

// Whether a file that begins so is a graph in a form that is neither JSON nor binary.
[[nodiscard]] bool is_graph_text(std::string_view head);

// berth's own form. Reading it gives the same graph.
[[nodiscard]] std::string to_json(const Graph& graph);

}  // namespace berth::graph
