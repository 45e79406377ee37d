#include "csrc/graph/schedule.h"

#include "csrc/core/check.h"
#include "csrc/graph/hash.h"

namespace berth::graph {

Schedule schedule_of_order(const Graph& graph, std::span<const OperatorId> order) {
  const std::size_t operators = graph.operators.size();
  BERTH_CHECK(order.size() == operators, kUsage, "an order of {} operators, the graph has {}",
              order.size(), operators);
  std::vector<bool> named(operators, false);
  constexpr std::size_t kNever = ~std::size_t{0};
  std::vector<std::size_t> last_use(graph.storages.size(), kNever);
  const auto for_each_storage = [&graph](OperatorId op, const auto& visit) {
    const Alternative& recorded = graph.operators[op].alternatives.front();
    for (const Read& read : recorded.reads) visit(read.value.storage);
    for (const ValueId& written : recorded.writes) visit(written.storage);
  };
  for (std::size_t position = 0; position < order.size(); ++position) {
    const OperatorId op = order[position];
    BERTH_CHECK(op < operators && !named[op], kUsage,
                "an order names operator {} twice, or there is none", op);
    named[op] = true;
    for_each_storage(op, [&](StorageId s) { last_use[s] = position; });
  }

  Schedule schedule;
  schedule.graph_hash = hash_of(graph);
  const auto drop = [&](StorageId s) {
    if (graph.storages[s].kind == StorageClass::kResident) return;
    schedule.steps.push_back(
        {.kind = ScheduleStep::Kind::kDrop, .reads = {}, .writes = {}, .buffer = s});
  };
  for (StorageId s = 0; s < graph.storages.size(); ++s) {
    schedule.buffers.push_back({.storage = s, .offsets = {}});
    if (last_use[s] == kNever && graph.storages[s].kind == StorageClass::kInput) drop(s);
  }
  for (std::size_t position = 0; position < order.size(); ++position) {
    const OperatorId op = order[position];
    ScheduleStep& step = schedule.steps.emplace_back();
    step.op = op;
    const Alternative& recorded = graph.operators[op].alternatives.front();
    for (const Read& read : recorded.reads) step.reads.push_back(read.value.storage);
    for (const ValueId& written : recorded.writes) step.writes.push_back(written.storage);
    for_each_storage(op, [&](StorageId s) {
      if (last_use[s] != position) return;
      drop(s);
      last_use[s] = kNever;  // named again by the same operator: dropped once
    });
  }
  return schedule;
}

std::vector<bool> begin_on_host(const Graph& graph, const Schedule& schedule) {
  std::vector<bool> known(schedule.buffers.size(), false), on_host(schedule.buffers.size(), false);
  for (const ScheduleStep& step : schedule.steps) {
    const bool copy =
        step.kind == ScheduleStep::Kind::kOffload || step.kind == ScheduleStep::Kind::kReload;
    if (!copy || known[step.buffer]) continue;
    known[step.buffer] = true;
    on_host[step.buffer] =
        step.kind == ScheduleStep::Kind::kReload &&
        graph.storages[schedule.buffers[step.buffer].storage].kind == StorageClass::kResident;
  }
  return on_host;
}

}  // namespace berth::graph
