#include "csrc/core/bytes.h"
#include "csrc/graph/schedule.h"
#include "csrc/schedule/joint/working_set.h"

#include <berth/referee.h>
#include <berth/schedule.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace berth::schedule {
namespace {

// So many times as long is searched for what fits a budget where nothing was found that does.
constexpr double kHarder = 5;

// The step in its recorded order: its peak, and what of it is resident.
graph::Verdict as_recorded(const graph::Graph& graph) {
  std::vector<graph::OperatorId> order(graph.order);
  if (order.empty()) {
    order.resize(graph.operators.size());
    std::iota(order.begin(), order.end(), 0U);
  }
  return graph::replay(graph, graph::schedule_of_order(graph, order));
}

// Takes the fastest ways to run each operator that leave the peak as it is.
void take_faster_ways(const graph::Graph& graph, graph::Schedule& schedule) {
  const graph::Verdict verdict = graph::replay(graph, schedule);
  for (std::size_t k = 0; k < schedule.steps.size(); ++k) {
    graph::ScheduleStep& step = schedule.steps[k];
    if (step.kind != graph::ScheduleStep::Kind::kRun) continue;
    const auto& ways = graph.operators[step.op].alternatives;
    const Bytes room = verdict.peak - verdict.live[k] + ways[step.alternative].workspace;
    for (std::uint32_t n = 0; n < ways.size(); ++n)
      if (ways[n].ns < ways[step.alternative].ns && ways[n].workspace <= room) step.alternative = n;
  }
}

}  // namespace

StepResult plan_within(const graph::Graph& graph, const StepOptions& options) {
  StepResult result = plan_step(graph, options);
  if (result.schedule || options.engine != "auto" || result.missing_bytes > 0) return result;
  StepOptions longer = options;
  longer.time_limit_seconds *= kHarder;
  if (options.rates) {
    StepOptions alone = longer;
    alone.rates.reset();
    StepResult without = plan_step(graph, alone);
    if (without.schedule) return without;
  }
  return plan_step(graph, longer);
}

Bytes most_from_outside(const graph::Graph& graph) {
  Bytes most = 0;
  for (const graph::Operator& op : graph.operators) {
    std::set<graph::StorageId> taken;
    for (const graph::Read& read : op.alternatives.front().reads) taken.insert(read.value.storage);
    for (const graph::ValueId& written : op.alternatives.front().writes)
      taken.insert(written.storage);
    Bytes bytes = 0;
    for (const graph::StorageId one : taken)
      if (graph.storages[one].kind != graph::StorageClass::kStep)
        bytes += graph.storages[one].bytes;
    most = std::max(most, bytes);
  }
  return most;
}

StepResult plan_beside_spills(const graph::Graph& graph, const StepOptions& options,
                              Bytes outside) {
  const graph::Verdict recorded = as_recorded(graph);
  const Bytes least = least_budget(graph).bytes;
  const Bytes found_easily = least + (recorded.peak - std::min(recorded.peak, least)) / 10;
  StepOptions planning = options;
  planning.budget = recorded.resident + options.budget - std::min(options.budget, outside);
  StepResult result = plan_step(graph, planning);
  if (result.schedule) return result;
  planning.budget = std::max(planning.budget, found_easily);
  result = plan_within(graph, planning);
  if (result.schedule || options.engine != "auto") return result;
  LeastMemory memory(graph, options);
  if (const StepResult* const any = memory.find()) result = *any;
  return result;
}

std::optional<graph::Schedule> plan_unbudgeted(const graph::Graph& graph,
                                               const StepOptions& options, bool faster_ways) {
  graph::Graph as_written = graph;
  for (graph::Operator& op : as_written.operators) op.alternatives.resize(1);
  StepOptions planning = options;
  planning.engine = "order";
  planning.rates.reset();
  planning.budget = kMaxBytes;
  std::optional<graph::Schedule> found = plan_step(as_written, planning).schedule;
  if (found) found->graph_hash = found->budget = 0;  // of a graph with these ways alone
  if (found && faster_ways) take_faster_ways(graph, *found);
  return found;
}

}  // namespace berth::schedule
