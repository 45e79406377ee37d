#include "csrc/cli/core/graph_output.h"

#include "csrc/cli/core/output_file.h"
#include "csrc/graph/file.h"
#include "csrc/graph/graph_file.h"

namespace berth::cli {

void write_graph_output(const std::string& path, const graph::Graph& graph) {
  if (path.ends_with(".json")) {
    write_output(path, graph::to_json(graph));
  } else {
    write_output(path, graph::serialize_graph(graph));
  }
}

bool is_graph_name(const std::string& path) {
  return path.ends_with(".graph") || path.ends_with(".json");
}

}  // namespace berth::cli
