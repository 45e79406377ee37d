#include "csrc/graph/edges.h"

#include "csrc/core/check.h"

#include <algorithm>

namespace berth::graph {
namespace {

std::string text_of(ValueId value) {
  return fmt::format("version {} of storage {}", value.version, value.storage);
}

}  // namespace

Edges edges_of(const Graph& graph, const std::vector<std::uint32_t>& choice) {
  const auto chosen = [&](OperatorId op) -> const Alternative& {
    return graph.operators[op].alternatives[choice.empty() ? 0 : choice[op]];
  };
  Edges edges;
  for (StorageId s = 0; s < graph.storages.size(); ++s)
    if (graph.storages[s].kind != StorageClass::kStep)
      edges.values.emplace(ValueId{s, 0}, Edges::Made{});
  for (OperatorId op = 0; op < graph.operators.size(); ++op) {
    for (const ValueId& written : chosen(op).writes) {
      const auto [there, added] = edges.values.emplace(written, Edges::Made{op, {}});
      BERTH_CHECK(added, kInput, "operator {} ({}) makes {}, which {} makes, too", op,
                  graph.operators[op].name, text_of(written),
                  there->second.maker ? fmt::format("operator {}", *there->second.maker)
                                      : "what was there before the step");
    }
  }
  for (OperatorId op = 0; op < graph.operators.size(); ++op) {
    for (const Read& read : chosen(op).reads) {
      const auto made = edges.values.find(read.value);
      BERTH_CHECK(made != edges.values.end(), kInput,
                  "operator {} ({}) reads {}, which nobody makes", op, graph.operators[op].name,
                  text_of(read.value));
      std::vector<OperatorId>& readers = made->second.readers;
      if (readers.empty() || readers.back() != op) readers.push_back(op);
    }
  }
  edges.order = graph.control;
  const auto add = [&edges](std::optional<OperatorId> earlier, std::optional<OperatorId> later) {
    if (earlier && later && *earlier != *later) edges.order.emplace_back(*earlier, *later);
  };
  for (auto it = edges.values.begin(); it != edges.values.end(); ++it) {
    const auto& [value, made] = *it;
    // mutant: graph-write-read
    for (const OperatorId reader : made.readers) add(made.maker, reader);
    const auto next = std::next(it);
    if (next == edges.values.end() || next->first.storage != value.storage) continue;
    add(made.maker, next->second.maker);
    // mutant: graph-read-write
    for (const OperatorId reader : made.readers) add(reader, next->second.maker);
  }
  std::optional<OperatorId> last_random, last_in_step;
  for (std::size_t k = 0; k < graph.operators.size(); ++k) {
    const OperatorId op = graph.order.empty() ? static_cast<OperatorId>(k) : graph.order[k];
    const Traits& traits = graph.operators[op].traits;
    if (traits.random) {
      // mutant: graph-random
      add(last_random, op);
      last_random = op;
    }
    if (traits.collective || traits.host_sync) {
      add(last_in_step, op);
      last_in_step = op;
    }
  }
  std::sort(edges.order.begin(), edges.order.end());
  edges.order.erase(std::unique(edges.order.begin(), edges.order.end()), edges.order.end());
  return edges;
}

}  // namespace berth::graph
