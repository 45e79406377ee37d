#include "csrc/torch/step/scheduling.h"

#include "csrc/core/check.h"
#include "csrc/torch/step/program_graph.h"

#include <berth/referee.h>
#include <berth/schedule.h>

#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace berth::torch::step {

namespace {

// libtorch's promise to kernels on the CPU; CUDA's allocators round to more.
constexpr Bytes kHostAlignment = 64, kDeviceAlignment = 512;

Bytes alignment_of(const Program& program) {
  for (const RecordedStorage& storage : program.storages)
    if (storage.device.type() != c10::DeviceType::CPU) return kDeviceAlignment;
  return kHostAlignment;
}

graph::Schedule as_recorded(const ProgramGraph& of) {
  std::vector<graph::OperatorId> order(of.graph.operators.size());
  std::iota(order.begin(), order.end(), 0U);
  return graph::schedule_of_order(of.graph, order);
}

}  // namespace

Scheduled schedule(Program program, const SchedulingOptions& options) {
  std::string not_met;
  const ProgramGraph of = graph_of(program, alignment_of(program));
  graph::Schedule chosen = as_recorded(of);
  if (options.engine != "release") {
    schedule::StepOptions planning;
    planning.time_limit_seconds = options.time_limit_seconds;
    planning.budget = options.budget;
    planning.engine = options.engine;
    std::optional<graph::Schedule> found;
    if (options.budget > 0) {
      schedule::StepResult within = schedule::plan_step(of.graph, planning);
      found = std::move(within.schedule);
      if (!found) not_met = std::move(within.why_not);
    }
    if (!found) {
      planning.budget = kMaxBytes;
      planning.engine = "order";
      found = schedule::plan_step(of.graph, planning).schedule;
    }
    if (found) chosen = std::move(*found);
  }
  // What a planner says is proven before anything is run by it.
  const graph::Verdict verdict = graph::replay(of.graph, chosen);
  BERTH_CHECK(verdict.violation.empty(), kUsage, "the schedule of a step is wrong: {}",
              verdict.violation);
  Scheduled result;
  result.instructions = instructions_of(program, of, chosen);
  result.program = std::move(program);
  result.predicted_peak = verdict.peak;
  result.resident = verdict.resident;
  result.predicted_ns = verdict.ns;
  result.runs_again = verdict.recomputed;
  result.budget_not_met = std::move(not_met);
  return result;
}

}  // namespace berth::torch::step
