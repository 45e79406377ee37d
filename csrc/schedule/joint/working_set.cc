#include "csrc/schedule/joint/working_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace berth::schedule {

Bytes needed(const graph::Graph& graph, const graph::Alternative& way) {
  std::vector<graph::StorageId> storages;
  for (const graph::Read& read : way.reads) storages.push_back(read.value.storage);
  for (const graph::ValueId& written : way.writes) storages.push_back(written.storage);
  std::sort(storages.begin(), storages.end());
  storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
  Bytes bytes = way.workspace, spared = 0;
  for (const graph::StorageId s : storages)
    if (graph.storages[s].kind != graph::StorageClass::kResident) bytes += graph.storages[s].bytes;
  for (const auto& [input, result] : way.in_place)
    spared += std::min(graph.storages[input.storage].bytes, graph.storages[result.storage].bytes);
  return bytes - std::min(bytes, spared);
}

LeastBudget least_budget(const graph::Graph& graph) {
  Bytes residents = 0;
  for (const graph::Storage& storage : graph.storages)
    if (storage.kind == graph::StorageClass::kResident) residents += storage.bytes;
  LeastBudget least{residents, "what is resident"};
  for (graph::OperatorId op = 0; op < graph.operators.size(); ++op) {
    Bytes bytes = kMaxBytes;
    for (const graph::Alternative& way : graph.operators[op].alternatives)
      bytes = std::min(bytes, needed(graph, way));
    if (residents + bytes > least.bytes)
      least = {residents + bytes, fmt::format("operator {} ({})", op, graph.operators[op].name)};
  }
  return least;
}

}  // namespace berth::schedule
