#pragma once

#include "csrc/graph/graph.h"

#include <string>
#include <string_view>

namespace berth::graph {

// The forms that graphs come in, told apart by their content. Besides these, which are one JSON
// object, logs of DTR: one a line, each with an INSTRUCTION; and PipeDream's graph.txt.
enum class GraphForm : std::uint8_t {
  kBerth,         // JSON, {"format": "berth-graph 1"}
  kPartitioning,  // dnn-partitioning: nodes with fpgaLatency, edges with sizes
  kMoccasin,      // node-link JSON: of Keras models, or of random layered graphs
  kMonet,         // MONeT's schedule zoo: tables of costs, cost_variants
  kPipedream,     // layers with fwd_ms and bwd_ms, edges as pairs of their ids
};
inline constexpr std::string_view kFormat = "berth-graph 1";
// All of them, for messages and help.
inline constexpr std::string_view kGraphForms =
    "berth's graph (binary or JSON), dnn-partitioning (nodes and edges), a log of DTR, MONeT "
    "(cost_variants), Moccasin (nodes and links), PipeDream (graph.txt, or the same as JSON)";

// Whether a file that begins so is a graph in a form that is neither JSON nor binary.
[[nodiscard]] bool is_graph_text(std::string_view head);

// berth's own form. Reading it gives the same graph.
[[nodiscard]] std::string to_json(const Graph& graph);

}  // namespace berth::graph
