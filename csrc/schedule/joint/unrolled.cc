#include "csrc/schedule/joint/unrolled.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

namespace berth::schedule {
namespace {

using graph::OperatorId;
using graph::ScheduleStep;

}  // namespace

Unrolled unroll(const graph::Graph& graph, const graph::Schedule& schedule) {
  Unrolled out;
  std::vector<std::uint32_t> version;  // that each buffer holds
  for (const graph::Buffer& buffer : schedule.buffers) {
    out.storages.push_back(buffer.storage);
    out.graph.storages.push_back(graph.storages[buffer.storage]);
    version.push_back(0);
  }
  std::vector<std::vector<OperatorId>> runs_of(graph.operators.size());
  for (const ScheduleStep& step : schedule.steps) {
    if (step.kind != ScheduleStep::Kind::kRun) continue;
    const auto run = static_cast<OperatorId>(out.runs.size());
    const graph::Operator& op = graph.operators[step.op];
    out.runs.push_back({step.op, step.alternative});
    runs_of[step.op].push_back(run);
    graph::Operator one;
    one.name = op.name;
    one.traits = op.traits;
    one.phase = runs_of[step.op].size() == 1 ? op.phase : graph::Phase::kBackward;
    graph::Alternative taken = op.alternatives[step.alternative];
    taken.in_place.clear();  // decided: the same buffer
    for (std::size_t k = 0; k < taken.reads.size(); ++k)
      taken.reads[k].value = {step.reads[k], version[step.reads[k]]};
    for (std::size_t k = 0; k < taken.writes.size(); ++k)
      taken.writes[k] = {step.writes[k], ++version[step.writes[k]]};
    one.alternatives.push_back(std::move(taken));
    out.graph.operators.push_back(std::move(one));
  }
  for (const auto& [earlier, later] : graph.control)
    for (const OperatorId run : runs_of[later])
      out.graph.control.emplace_back(runs_of[earlier].front(), run);
  out.graph.order.resize(out.runs.size());
  std::iota(out.graph.order.begin(), out.graph.order.end(), OperatorId{0});
  return out;
}

graph::Schedule rolled_up(const Unrolled& unrolled, graph::Schedule schedule,
                          std::uint64_t graph_hash) {
  for (graph::Buffer& buffer : schedule.buffers) buffer.storage = unrolled.storages[buffer.storage];
  for (ScheduleStep& step : schedule.steps) {
    if (step.kind != ScheduleStep::Kind::kRun) continue;
    const Unrolled::Run& run = unrolled.runs[step.op];
    step.op = run.op;
    step.alternative = run.alternative;
  }
  schedule.graph_hash = graph_hash;
  return schedule;
}

std::optional<Unrolled> without(const Unrolled& unrolled, OperatorId run) {
  const std::vector<graph::Operator>& operators = unrolled.graph.operators;
  std::optional<OperatorId> before;
  bool passed = false;
  std::vector<bool> written_over(unrolled.graph.storages.size(), false);
  for (const OperatorId one : unrolled.graph.order) {
    passed = passed || one == run;
    if (!passed && unrolled.runs[one].op == unrolled.runs[run].op) before = one;
    for (const graph::ValueId& written : operators[one].alternatives.front().writes)
      if (written.version > 1) written_over[written.storage] = true;
  }
  if (!before) return std::nullopt;
  std::map<graph::StorageId, graph::StorageId> instead;
  const auto& made = operators[run].alternatives.front().writes;
  const auto& there = operators[*before].alternatives.front().writes;
  for (std::size_t k = 0; k < made.size(); ++k) {
    if (made.size() != there.size() || written_over[made[k].storage] ||
        written_over[there[k].storage] || made[k].version != 1 || there[k].version != 1)
      return std::nullopt;
    instead[made[k].storage] = there[k].storage;
  }
  Unrolled out = unrolled;
  // It may be the one that was first before they were ordered again.
  graph::Operator& kept = out.graph.operators[*before];
  kept.phase = std::min(kept.phase, operators[run].phase);
  for (auto& [earlier, later] : out.graph.control)
    if (earlier == run) earlier = *before;
  const auto erase = [run](auto& list) { list.erase(list.begin() + run); };
  erase(out.graph.operators);
  erase(out.runs);
  for (graph::Operator& op : out.graph.operators)
    for (graph::Read& read : op.alternatives.front().reads)
      if (const auto found = instead.find(read.value.storage); found != instead.end())
        read.value.storage = found->second;
  const auto is_of_run = [run](const auto& edge) { return edge.second == run; };
  std::erase_if(out.graph.control, is_of_run);
  for (auto& [earlier, later] : out.graph.control) {
    if (earlier > run) --earlier;
    if (later > run) --later;
  }
  std::erase(out.graph.order, run);
  for (OperatorId& one : out.graph.order)
    if (one > run) --one;
  return out;
}

std::vector<OperatorId> first_runs(const Unrolled& unrolled, std::span<const OperatorId> order) {
  std::vector<OperatorId> first;
  std::vector<bool> ran(unrolled.runs.size(), false);
  for (const OperatorId run : order) {
    const OperatorId op = unrolled.runs[run].op;
    if (ran[op]) continue;
    ran[op] = true;
    first.push_back(op);
  }
  return first;
}

}  // namespace berth::schedule
