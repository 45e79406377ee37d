#include "csrc/papers/importers/importers.h"

#include "csrc/graph/other_forms.h"

namespace berth::graph {
namespace {

bool has(const Json& root, const char* one, const char* other) {
  return root.contains(one) && root.contains(other);
}

bool is_monet(const Json& root) { return root.contains("cost_variants"); }

bool has_edges(const Json& root) { return !is_monet(root) && has(root, "nodes", "edges"); }

// Layers with the times of both directions.
bool is_pipedream(const Json& root) {
  if (!has_edges(root)) return false;
  const Json& nodes = root["nodes"];
  return nodes.is_array() && !nodes.empty() && nodes[0].is_object() &&
         (nodes[0].contains("fwd_ms") || nodes[0].contains("activation_bytes"));
}

bool is_partitioning(const Json& root) { return has_edges(root) && !is_pipedream(root); }

bool is_moccasin(const Json& root) {
  return !is_monet(root) && !has_edges(root) && has(root, "nodes", "links");
}

Graph import_pipedream_text(std::string_view text) {
  return import_pipedream(pipedream_from_text(text));
}

}  // namespace

void add_forms_of_papers() {
  add_form({.name = "dnn-partitioning (nodes and edges)",
            .is_json = is_partitioning,
            .from_json = import_partitioning});
  add_form({.name = "a log of DTR", .is_text = is_dtr_log, .from_text = import_dtr});
  add_form({.name = "MONeT (cost_variants)", .is_json = is_monet, .from_json = import_monet});
  add_form(
      {.name = "Moccasin (nodes and links)", .is_json = is_moccasin, .from_json = import_moccasin});
  add_form({.name = "PipeDream (graph.txt, or the same as JSON)",
            .is_text = is_pipedream_text,
            .from_text = import_pipedream_text,
            .is_json = is_pipedream,
            .from_json = import_pipedream});
}

}  // namespace berth::graph
