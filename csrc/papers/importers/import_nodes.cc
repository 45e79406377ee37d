// Graphs that others published, as ours.
#include "csrc/core/check.h"
#include "csrc/graph/json.h"
#include "csrc/papers/importers/importers.h"

#include <map>
#include <set>
#include <unordered_map>

namespace berth::graph {
namespace {

// Operators of one alternative each, and a storage a result.
class PublishedGraphBuilder {
 public:
  // Returns its number.
  OperatorId add(std::string name, bool backward, std::uint64_t ns) {
    graph_.operators.push_back(
        {.name = std::move(name),
         .phase = backward ? Phase::kBackward : Phase::kForward,
         .traits = {},
         .forward = {},
         .alternatives = {{.ns = ns, .workspace = 0, .reads = {}, .writes = {}, .in_place = {}}}});
    return static_cast<OperatorId>(graph_.operators.size() - 1);
  }
  ValueId add_result(OperatorId op, Bytes bytes) {
    const ValueId value{add_storage(bytes, StorageClass::kStep), 1};
    graph_.operators[op].alternatives[0].writes.push_back(value);
    return value;
  }
  StorageId add_storage(Bytes bytes, StorageClass kind) {
    graph_.storages.push_back({bytes, kind, trace::RoleKind::kUnknown});
    return static_cast<StorageId>(graph_.storages.size() - 1);
  }
  void add_read(OperatorId op, ValueId value) {
    if (!read_.emplace(op, value).second) return;
    graph_.operators[op].alternatives[0].reads.push_back(
        {value, 0, graph_.storages[value.storage].bytes});
  }
  Graph take() { return std::move(graph_); }

 private:
  Graph graph_;
  std::set<std::pair<OperatorId, ValueId>> read_;
};

// Names of nodes as they are in the file, to their place in it.
class Numbers {
 public:
  void add(const Json& name, const std::string& whose) {
    const bool added = numbers_.emplace(name.dump(), numbers_.size()).second;
    BERTH_CHECK(added, kInput, "{} has the id {}, as another has", whose, name.dump());
  }
  [[nodiscard]] std::size_t of(const Json& name) const {
    const auto found = numbers_.find(name.dump());
    BERTH_CHECK(found != numbers_.end(), kInput, "an edge names node {}, which is not there",
                name.dump().substr(0, 40));
    return found->second;
  }

 private:
  std::unordered_map<std::string, std::size_t> numbers_;
};

std::uint64_t time_from(const Json& value, double unit_ns, const std::string& whose) {
  BERTH_CHECK(value.is_number(), kInput, "{} has no time", whose);
  const double ns = value.get<double>() * unit_ns;
  BERTH_CHECK(ns >= 0 && ns < 1e18, kInput, "{} takes {} ns", whose, ns);
  return static_cast<std::uint64_t>(ns);
}

// Of a member that may be missing, a truth value or a number.
bool truth(const Json& node, const char* name) {
  if (!node.is_object() || !node.contains(name)) return false;
  const Json& value = node[name];
  return value.is_boolean() ? value.get<bool>() : value.is_number() && value.get<double>() != 0;
}

const Json& list(const Json& root, const char* name) {
  const Json& value = member(root, name, "the graph");
  BERTH_CHECK(value.is_array() && value.size() <= Graph::kMaxStorages, kInput,
              "its {} are no list, or more than {}", name, Graph::kMaxStorages);
  return value;
}

}  // namespace

// A node has a result for each size among its out-edges; nodes without in-edges are weights.
Graph import_partitioning(const Json& root) {
  Numbers numbers;
  const Json& nodes = list(root, "nodes");
  for (const Json& node : nodes) numbers.add(member(node, "id", "a node"), "a node");
  struct Edge {
    std::size_t from, to;
    Bytes bytes;
  };
  std::vector<Edge> edges;
  std::vector<bool> reads(nodes.size(), false);
  for (const Json& edge : list(root, "edges")) {
    edges.push_back({numbers.of(member(edge, "sourceId", "an edge")),
                     numbers.of(member(edge, "destId", "an edge")),
                     size_from(member(edge, "size", "an edge"), "an edge")});
    reads[edges.back().to] = true;
  }
  PublishedGraphBuilder builder;
  std::vector<OperatorId> op(nodes.size(), 0);
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    if (!reads[k]) continue;
    const std::string whose = fmt::format("node {}", k);
    const Json& name = member(nodes[k], "name", whose);
    op[k] = builder.add(name.is_string() ? name.get<std::string>() : name.dump(),
                        truth(nodes[k], "isBackwardNode"),
                        time_from(member(nodes[k], "fpgaLatency", whose), 1e6, whose));
  }
  std::map<std::pair<std::size_t, Bytes>, ValueId> results;
  for (const Edge& edge : edges) {
    const auto [there, added] = results.try_emplace({edge.from, edge.bytes});
    if (added)
      there->second = reads[edge.from]
                          ? builder.add_result(op[edge.from], edge.bytes)
                          : ValueId{builder.add_storage(edge.bytes, StorageClass::kResident), 0};
    builder.add_read(op[edge.to], there->second);
  }
  return builder.take();
}

// Node-link JSON of networkx: nodes with cost_ram and cost_cpu and links from source to target, or
// with out_cost and duration and links from "0" to "1".
Graph import_moccasin(const Json& root) {
  const Json& nodes = list(root, "nodes");
  const bool layered = !nodes.empty() && nodes[0].is_object() && nodes[0].contains("out_cost");
  Numbers numbers;
  PublishedGraphBuilder builder;
  std::vector<ValueId> value;
  for (const Json& node : nodes) {
    const std::string whose = fmt::format("node {}", value.size());
    numbers.add(member(node, layered ? "name" : "id", whose), whose);
    const Json& name = member(node, "name", whose);
    const OperatorId op = builder.add(
        name.is_string() ? name.get<std::string>() : name.dump(), truth(node, "backward"),
        time_from(member(node, layered ? "duration" : "cost_cpu", whose), 1, whose));
    value.push_back(builder.add_result(
        op, size_from(member(node, layered ? "out_cost" : "cost_ram", whose), whose)));
  }
  for (const Json& link : list(root, "links")) {
    const std::size_t from = numbers.of(member(link, layered ? "0" : "source", "a link"));
    const std::size_t to = numbers.of(member(link, layered ? "1" : "target", "a link"));
    builder.add_read(static_cast<OperatorId>(to), value[from]);
  }
  return builder.take();
}

}  // namespace berth::graph
