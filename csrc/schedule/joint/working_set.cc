#include "csrc/schedule/joint/working_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace berth::schedule {

namespace {

// The storages of all operands of an alternative, each once, by number.
std::vector<graph::StorageId> storages_of(const graph::Alternative& alternative) {
  std::vector<graph::StorageId> storages;
  for (const graph::Read& read : alternative.reads) storages.push_back(read.value.storage);
  for (const graph::ValueId& written : alternative.writes) storages.push_back(written.storage);
  std::sort(storages.begin(), storages.end());
  storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
  return storages;
}

}  // namespace

Bytes needed(const graph::Graph& graph, const graph::Alternative& alternative) {
  Bytes bytes = alternative.workspace, spared = 0;
  for (const graph::StorageId s : storages_of(alternative))
    if (graph.storages[s].kind != graph::StorageClass::kResident) bytes += graph.storages[s].bytes;
  for (const auto& [input, result] : alternative.in_place)
    spared += std::min(graph.storages[input.storage].bytes, graph.storages[result.storage].bytes);
  return bytes - std::min(bytes, spared);
}

LeastBudget least_budget(const graph::Graph& graph) {
  return least_budget(graph, std::vector<bool>(graph.storages.size(), false));
}

LeastBudget least_budget(const graph::Graph& graph, const std::vector<bool>& movable) {
  const auto is_resident = [&](graph::StorageId s) {
    return graph.storages[s].kind == graph::StorageClass::kResident;
  };
  Bytes residents = 0;  // that stay
  for (graph::StorageId s = 0; s < graph.storages.size(); ++s)
    if (is_resident(s) && !movable[s]) residents += graph.storages[s].bytes;
  // Inputs that nobody reads are dropped before the first operator, but they are there before.
  Bytes begin = residents;
  for (const graph::Storage& storage : graph.storages)
    // mutant: least-begin
    if (storage.kind == graph::StorageClass::kInput) begin += storage.bytes;
  LeastBudget least{begin, "what is there at the beginning"};
  for (graph::OperatorId op = 0; op < graph.operators.size(); ++op) {
    Bytes bytes = kMaxBytes;
    for (const graph::Alternative& alternative : graph.operators[op].alternatives) {
      Bytes taken = 0;  // of residents that may be on the host
      for (const graph::StorageId s : storages_of(alternative))
        if (is_resident(s) && movable[s]) taken += graph.storages[s].bytes;
      bytes = std::min(bytes, needed(graph, alternative) + taken);
    }
    if (residents + bytes > least.bytes)
      least = {residents + bytes, fmt::format("operator {} ({})", op, graph.operators[op].name)};
  }
  return least;
}

}  // namespace berth::schedule
