#pragma once

#include "csrc/graph/graph.h"

#include <string>
#include <string_view>

namespace berth::graph {

// The forms that graphs come in, told apart by their content. Besides these, which are one JSON
// object, logs of DTR: one a line, each with an INSTRUCTION.
enum class GraphForm : std::uint8_t {
  kBerth,         // JSON, {"format": "berth-graph 1"}
  kPartitioning,  // dnn-partitioning: nodes with fpgaLatency, edges with sizes
  kMoccasin,      // node-link JSON: of Keras models, or of random layered graphs
  kMonet,         // MONeT's schedule zoo: tables of costs, cost_variants
  kPipedream,     // layers with fwd_ms and bwd_ms, edges as pairs of their ids
};
inline constexpr std::string_view kFormat = "berth-graph 1";

// berth's own form. Reading it gives the same graph.
[[nodiscard]] std::string to_json(const Graph& graph);

}  // namespace berth::graph
