#include "csrc/schedule/baselines/engines.h"

#include "csrc/core/check.h"
#include "csrc/schedule/baselines/knapsack.h"
#include "csrc/schedule/baselines/monet_form.h"
#include "csrc/schedule/retention/cheapest.h"
#include "csrc/schedule/retention/chen.h"
#include "csrc/schedule/retention/retention.h"

#include <algorithm>

namespace berth::schedule {
namespace {

constexpr std::size_t kGrid = 100;  // shares that Chen's rule and the knapsack try
constexpr double kPrograms = 4;     // that Checkmate's rounding solves

}  // namespace

const std::vector<std::string>& baseline_engines() {
  static const auto& kEngines =
      *new const std::vector<std::string>{"chen", "checkmate", "knapsack", "monet"};
  return kEngines;
}

BaselinePlan plan_baseline(const std::string& engine, const graph::Graph& graph,
                           const StageGraph& stages, const PlannerOptions& options,
                           const std::function<bool()>& stop) {
  const StageProblem& problem = stages.problem;
  CheapestPlan cheapest(problem);
  const auto offer = [&](const Retention& plan) { cheapest.offer(plan); };
  BaselinePlan result;
  if (engine == "chen") {
    chen_plans(problem, kGrid, offer, stop);
  } else if (engine == "knapsack") {
    knapsack_plans(graph, stages, kGrid, offer, stop);
  } else if (engine == "checkmate") {
    CheckmateOptions how;
    how.seconds = options.time_limit_seconds / kPrograms;
    result.checkmate = checkmate_engine().plans(problem, how, offer);
  } else {
    BERTH_CHECK(engine == "monet", kUsage, "no planner '{}' of others is known", engine);
    const MonetForm form = monet_form(problem);
    RetentionOptions how;
    static_cast<PlannerOptions&>(how) = options;
    how.engine = "auto";
    if (const RetentionResult found = plan_retention(form.problem, how); found.plan)
      offer(exact_plan(problem, form, *found.plan));
  }
  result.plan = cheapest.best();
  result.offered = cheapest.offered();
  return result;
}

}  // namespace berth::schedule
