// Layer profiles of PipeDream: forward layers with times of both directions.
#include "csrc/core/check.h"
#include "csrc/graph/json.h"
#include "csrc/papers/importers/importers.h"

#include <map>
#include <queue>
#include <set>

namespace berth::graph {
namespace {

constexpr std::size_t kMostResults = 256;  // of one layer
constexpr std::size_t kMostEdges = std::size_t{1} << 22;

struct Layer {
  std::string id, name;
  std::uint64_t forward_ns = 0, backward_ns = 0;
  std::vector<Bytes> results;
  Bytes parameters = 0;
  std::set<std::size_t> inputs, readers;  // layers
};

std::string text_of(const Json& value, const std::string& whose) {
  BERTH_CHECK(value.is_string(), kInput, "{} has {}: a text is wanted", whose,
              value.dump().substr(0, 40));
  return value.get<std::string>();
}

std::uint64_t ns_of(const Json& value, const std::string& whose) {
  BERTH_CHECK(value.is_number(), kInput, "{} has {}: a time in ms is wanted", whose,
              value.dump().substr(0, 40));
  const double ns = value.get<double>() * 1e6;
  BERTH_CHECK(ns >= 0 && ns < 1e18, kInput, "{} has {} ms, 0 to 1e12 are legal", whose, ns / 1e6);
  return static_cast<std::uint64_t>(ns + 0.5);
}

Layer layer_from(const Json& node, std::size_t number) {
  Layer layer;
  layer.id =
      text_of(member(node, "id", fmt::format("node {}", number)), fmt::format("node {}", number));
  const std::string whose = fmt::format("node '{}'", layer.id.substr(0, 40));
  layer.name = text_of(member(node, "op", whose), whose);
  layer.forward_ns = ns_of(member(node, "fwd_ms", whose), whose);
  layer.backward_ns = ns_of(member(node, "bwd_ms", whose), whose);
  layer.parameters = size_from(member(node, "param_bytes", whose), whose);
  const Json& results = member(node, "activation_bytes", whose);
  if (!results.is_array()) {
    layer.results.push_back(size_from(results, whose));
    return layer;
  }
  BERTH_CHECK(!results.empty() && results.size() <= kMostResults, kInput,
              "{} has {} results, 1 to {} are legal", whose, results.size(), kMostResults);
  for (const Json& bytes : results) layer.results.push_back(size_from(bytes, whose));
  return layer;
}

const Json& list(const Json& root, const char* name, std::size_t most) {
  const Json& value = member(root, name, "the graph");
  BERTH_CHECK(value.is_array() && value.size() <= most, kInput,
              "its {} are no list, or more than {}", name, most);
  return value;
}

std::vector<Layer> layers_from(const Json& root) {
  std::vector<Layer> layers;
  std::map<std::string, std::size_t> numbers;
  for (const Json& node : list(root, "nodes", Graph::kMaxOperators / 2)) {
    layers.push_back(layer_from(node, layers.size()));
    const std::string& id = layers.back().id;
    BERTH_CHECK(numbers.emplace(id, layers.size() - 1).second, kInput, "two nodes have the id '{}'",
                id.substr(0, 40));
  }
  const auto number_of = [&numbers](const Json& id) {
    const auto found = numbers.find(text_of(id, "an edge"));
    BERTH_CHECK(found != numbers.end(), kInput, "an edge names node {}, which is not there",
                id.dump().substr(0, 40));
    return found->second;
  };
  for (const Json& edge : list(root, "edges", kMostEdges)) {
    BERTH_CHECK(edge.is_array() && edge.size() == 2, kInput,
                "an edge is {}: a pair of nodes is wanted", edge.dump().substr(0, 40));
    const std::size_t from = number_of(edge[0]), to = number_of(edge[1]);
    layers[from].readers.insert(to);
    layers[to].inputs.insert(from);
  }
  return layers;
}

// A layer comes after its inputs; of those that may, the one with the shorter id, then the lesser:
// node9 before node10, as they were recorded.
std::vector<std::size_t> order_of(const std::vector<Layer>& layers) {
  const auto later = [&layers](std::size_t a, std::size_t b) {
    const std::string &one = layers[a].id, &other = layers[b].id;
    return one.size() != other.size() ? one.size() > other.size() : one > other;
  };
  std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(later)> ready(later);
  std::vector<std::size_t> missing(layers.size()), order;
  for (std::size_t k = 0; k < layers.size(); ++k) {
    missing[k] = layers[k].inputs.size();
    if (missing[k] == 0) ready.push(k);
  }
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (const std::size_t reader : layers[order.back()].readers)
      if (--missing[reader] == 0) ready.push(reader);
  }
  for (std::size_t k = 0; k < layers.size(); ++k)
    BERTH_CHECK(missing[k] == 0, kInput, "node '{}' lies on a cycle, or behind one",
                layers[k].id.substr(0, 40));
  return order;
}

// Makes the operators of both directions, in the order in which they run.
class Mirroring {
 public:
  Graph run(const std::vector<Layer>& layers) {
    const std::vector<std::size_t> order = order_of(layers);
    results_.resize(layers.size());
    gradients_.resize(layers.size());
    parameters_.resize(layers.size());
    forward_.resize(layers.size());
    for (const std::size_t k : order) add_forward(layers, k);
    for (auto k = order.rbegin(); k != order.rend(); ++k) add_backward(layers, *k);
    return std::move(graph_);
  }

 private:
  StorageId add_storage(Bytes bytes, StorageClass kind, trace::RoleKind role) {
    graph_.storages.push_back({bytes, kind, role});
    return static_cast<StorageId>(graph_.storages.size() - 1);
  }
  void read(Alternative& one, ValueId value) const {
    one.reads.push_back({value, 0, graph_.storages[value.storage].bytes});
  }

  void add_forward(const std::vector<Layer>& layers, std::size_t k) {
    const Layer& layer = layers[k];
    forward_[k] = static_cast<OperatorId>(graph_.operators.size());
    Operator op;
    op.name = layer.name;
    op.traits.random = layer.name.starts_with("Dropout");
    op.traits.changes_state = layer.inputs.empty();  // it loads the next batch
    op.alternatives.resize(1);
    Alternative& one = op.alternatives[0];
    one.ns = layer.forward_ns;
    for (const std::size_t input : layer.inputs)
      for (const ValueId value : results_[input]) read(one, value);
    if (layer.parameters != 0) {
      parameters_[k] = ValueId{
          add_storage(layer.parameters, StorageClass::kResident, trace::RoleKind::kParameter), 0};
      read(one, *parameters_[k]);
    }
    for (const Bytes bytes : layer.results) {
      results_[k].push_back(
          {add_storage(bytes, StorageClass::kStep, trace::RoleKind::kActivation), 1});
      one.writes.push_back(results_[k].back());
    }
    graph_.operators.push_back(std::move(op));
  }

  // Reads what the layer made, its inputs and the gradient of what it made, if there is one; makes
  // the gradient of each input, or adds to what another reader of the input made.
  void add_backward(const std::vector<Layer>& layers, std::size_t k) {
    const Layer& layer = layers[k];
    Operator op;
    op.name = layer.name + ", backward";
    op.phase = Phase::kBackward;
    op.forward = forward_[k];
    op.alternatives.resize(1);
    Alternative& one = op.alternatives[0];
    one.ns = layer.backward_ns;
    for (const ValueId value : results_[k]) read(one, value);
    for (const ValueId gradient : gradients_[k]) read(one, gradient);
    if (parameters_[k]) read(one, *parameters_[k]);
    for (const std::size_t input : layer.inputs) {
      for (const ValueId value : results_[input]) read(one, value);
      const bool first = gradients_[input].empty();
      for (std::size_t r = 0; r < results_[input].size(); ++r) {
        if (first) {
          gradients_[input].push_back({add_storage(layers[input].results[r], StorageClass::kStep,
                                                   trace::RoleKind::kGradient),
                                       1});
        } else {
          read(one, gradients_[input][r]);
          ++gradients_[input][r].version;
        }
        one.writes.push_back(gradients_[input][r]);
      }
    }
    graph_.operators.push_back(std::move(op));
  }

  Graph graph_;
  std::vector<std::vector<ValueId>> results_, gradients_;  // by layer; gradients as last written
  std::vector<std::optional<ValueId>> parameters_;
  std::vector<OperatorId> forward_;
};

}  // namespace

Graph import_pipedream(const Json& root) { return Mirroring().run(layers_from(root)); }

}  // namespace berth::graph
