#include "csrc/schedule/offload/to_schedule.h"

#include "csrc/core/check.h"
#include "csrc/schedule/offload/from_graph.h"

#include <numeric>
#include <utility>

namespace berth::schedule::offload {
namespace {

using Kind = graph::ScheduleStep::Kind;

class Writing {
 public:
  Writing(const graph::Graph& graph, const Problem& problem, const OffloadPlan& plan,
          const std::vector<graph::OperatorId>& order, const std::vector<std::uint32_t>& choice)
      : graph_(graph),
        problem_(problem),
        plan_(plan),
        choice_(choice),
        order_(order.empty() ? graph.order : order),
        storage_of_(storages_of_values(graph, choice)) {
    if (order_.empty()) {
      order_.resize(graph.operators.size());
      std::iota(order_.begin(), order_.end(), graph::OperatorId{0});
    }
    BERTH_CHECK(
        order_.size() == problem.operators.size() && storage_of_.size() == problem.values.size(),
        kUsage, "a problem of {} operators and {} values for a graph of {} and {}",
        problem.operators.size(), problem.values.size(), order_.size(), storage_of_.size());
    execution_.expand(problem, plan);
  }

  graph::Schedule run() {
    // Each storage begins with one buffer of its own number.
    for (graph::StorageId s = 0; s < graph_.storages.size(); ++s) {
      schedule_.buffers.push_back({s, {}});
      buffer_of_.push_back(s);
    }
    reloads_.resize(problem_.operators.size());
    for (Value v = 0; v < problem_.values.size(); ++v) {
      if (execution_.fate[v] != Fate::kOffload) continue;
      const Index trigger = plan_.choices[v].trigger;
      BERTH_CHECK(trigger < reloads_.size(), kUsage,
                  "the reload of value {} is triggered by operator {}, there are {}", v, trigger,
                  reloads_.size());
      reloads_[trigger].push_back(v);
    }
    for (Index run = 0; run < execution_.runs.size(); ++run) add(run);
    return std::move(schedule_);
  }

 private:
  void add_step(Kind kind, graph::BufferId buffer) {
    schedule_.steps.push_back(
        {.kind = kind, .op = 0, .alternative = 0, .reads = {}, .writes = {}, .buffer = buffer});
  }

  void add(Index run) {
    const auto& [op, again] = execution_.runs[run];
    const Problem::OperatorOf& one = problem_.operators[op];
    if (!again)
      for (const Value v : reloads_[op])
        if (execution_.last_before[v] != run) add_step(Kind::kReload, buffer_of_[storage_of_[v]]);
    graph::ScheduleStep step;
    step.op = order_[op];
    step.alternative = choice_.empty() ? 0 : choice_[order_[op]];
    const graph::Alternative& taken = graph_.operators[step.op].alternatives[step.alternative];
    for (const graph::Read& read : taken.reads)
      step.reads.push_back(buffer_of_[read.value.storage]);
    std::vector<graph::BufferId> for_nothing;
    if (again)
      for (const Value v : one.makes) {
        const auto made = static_cast<graph::BufferId>(schedule_.buffers.size());
        schedule_.buffers.push_back({storage_of_[v], {}});
        if (execution_.fate[v] != Fate::kRecompute) {
          for_nothing.push_back(std::exchange(buffer_of_[storage_of_[v]], made));
          continue;
        }
        buffer_of_[storage_of_[v]] = made;
      }
    for (const graph::ValueId& written : taken.writes)
      step.writes.push_back(buffer_of_[written.storage]);
    schedule_.steps.push_back(std::move(step));
    // Those made for nothing are dropped, and what was there before is taken up again.
    for (const graph::BufferId before : for_nothing) {
      graph::BufferId& buffer = buffer_of_[schedule_.buffers[before].storage];
      add_step(Kind::kDrop, buffer);
      buffer = before;
    }
    for (const Value v : one.reads) end_use(v, run);
    for (const Value v : one.makes)
      if (!again || execution_.fate[v] == Fate::kRecompute) end_use(v, run);
  }

  void end_use(Value v, Index run) {
    const graph::BufferId buffer = buffer_of_[storage_of_[v]];
    if (execution_.last_use[v] == run)
      add_step(Kind::kDrop, buffer);
    else if (execution_.last_before[v] == run && execution_.fate[v] != Fate::kKeep)
      add_step(execution_.fate[v] == Fate::kOffload ? Kind::kOffload : Kind::kDrop, buffer);
    else
      return;
    // A reload that the same operator triggers begins after the copy to the host, so the step does.
    const bool back = execution_.fate[v] == Fate::kOffload && execution_.last_before[v] == run &&
                      execution_.run_of[plan_.choices[v].trigger] == run;
    if (back) add_step(Kind::kReload, buffer);
  }

  const graph::Graph& graph_;
  const Problem& problem_;
  const OffloadPlan& plan_;
  const std::vector<std::uint32_t>& choice_;
  std::vector<graph::OperatorId> order_;
  const std::vector<graph::StorageId> storage_of_;
  Execution execution_;
  std::vector<std::vector<Value>> reloads_;  // by trigger
  std::vector<graph::BufferId> buffer_of_;   // by storage: where it is now
  graph::Schedule schedule_;
};

}  // namespace

graph::Schedule to_schedule(const graph::Graph& graph, const Problem& problem,
                            const OffloadPlan& plan, const Outcome& outcome,
                            const std::vector<graph::OperatorId>& order,
                            const std::vector<std::uint32_t>& choice) {
  graph::Schedule schedule = Writing(graph, problem, plan, order, choice).run();
  schedule.peak = outcome.device_peak;
  schedule.ns = outcome.ns;
  return schedule;
}

}  // namespace berth::schedule::offload
