#include "csrc/schedule/order/from_graph.h"

#include "csrc/graph/edges.h"

namespace berth::schedule {

OrderProblem order_problem(const graph::Graph& graph, const std::vector<std::uint32_t>& choice) {
  const graph::Edges edges = graph::edges_of(graph, choice);
  OrderProblem problem;
  problem.nodes.resize(graph.operators.size());
  for (Node n = 0; n < problem.nodes.size(); ++n)
    problem.nodes[n].workspace =
        graph.operators[n].alternatives[choice.empty() ? 0 : choice[n]].workspace;
  problem.control = edges.order;
  const auto is_first = [](const graph::ValueId& value, graph::StorageClass kind) {
    return value.version == (kind == graph::StorageClass::kStep ? 1U : 0U);
  };
  for (const auto& [value, made] : edges.values) {
    const graph::Storage& storage = graph.storages[value.storage];
    if (storage.kind == graph::StorageClass::kResident) {
      if (is_first(value, storage.kind)) problem.constant += storage.bytes;
      continue;
    }
    if (is_first(value, storage.kind)) {
      problem.values.push_back({storage.bytes, made.maker.value_or(kNoNode), made.readers});
      continue;
    }
    std::vector<Node>& readers = problem.values.back().readers;
    if (made.maker) readers.push_back(*made.maker);  // in the bytes of the version before
    readers.insert(readers.end(), made.readers.begin(), made.readers.end());
  }
  problem.derive();
  return problem;
}

}  // namespace berth::schedule
