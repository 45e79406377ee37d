#pragma once

#include "csrc/graph/graph.h"

#include <span>
#include <string>
#include <string_view>

namespace berth::graph {

// The forms that graphs come in, told apart by their content. Besides these, which are one JSON
// object, logs of DTR: one a line, each with an INSTRUCTION.
enum class GraphForm : std::uint8_t {
  kBerth,         // JSON, {"format": "berth-graph 1"}
  kPartitioning,  // dnn-partitioning: nodes with fpgaLatency, edges with sizes
  kMoccasin,      // node-link JSON: of Keras models, or of random layered graphs
  kPipedream,     // layers with fwd_ms and bwd_ms, edges as pairs of their ids
};
inline constexpr std::string_view kFormat = "berth-graph 1";

// Reads a graph of any form, or the binary file of graph_file.h. Trusts nothing: throws
// Error(kInput) that names the file and what is wrong, and for what violation() finds. 10 MB in
// 0.2 s.
[[nodiscard]] Graph read_graph(const std::string& path);
[[nodiscard]] Graph parse_graph(std::string_view text, const std::string& name);

// berth's own form. Reading it gives the same graph.
[[nodiscard]] std::string to_json(const Graph& graph);

}  // namespace berth::graph
