#include "csrc/papers/planners.h"

#include "csrc/core/check.h"
#include "csrc/papers/importers/importers.h"
#include "csrc/papers/monet_form.h"
#include "csrc/papers/offload_rules.h"
#include "csrc/schedule/offload/named_rules.h"
#include "csrc/schedule/recomputation/cheapest.h"
#include "csrc/schedule/recomputation/chen.h"
#include "csrc/schedule/recomputation/knapsack.h"
#include "csrc/schedule/recomputation/named_rules.h"
#include "csrc/schedule/recomputation/recomputation.h"

#include <berth/papers.h>

namespace berth::schedule {
namespace {

constexpr std::size_t kGrid = 100;  // shares that Chen's rule and the knapsack try
constexpr double kPrograms = 4;     // that Checkmate's rounding solves

std::optional<Recomputation> plan_named(const std::string& name, const graph::Graph& graph,
                                        const StageGraph& stages, const PlannerOptions& options,
                                        const std::function<bool()>& stop) {
  return plan_baseline(name, graph, stages, options, stop).plan;
}

}  // namespace

BaselinePlan plan_baseline(const std::string& engine, const graph::Graph& graph,
                           const StageGraph& stages, const PlannerOptions& options,
                           const std::function<bool()>& stop) {
  const StageProblem& problem = stages.problem;
  CheapestPlan cheapest(problem);
  const auto offer = [&](const Recomputation& plan) { cheapest.offer(plan); };
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
    RecomputationOptions how;
    static_cast<PlannerOptions&>(how) = options;
    how.engine = "auto";
    if (const RecomputationResult found = plan_recomputation(form.problem, how); found.plan)
      offer(exact_plan(problem, form, *found.plan));
  }
  result.plan = cheapest.best();
  result.offered = cheapest.offered();
  return result;
}

}  // namespace berth::schedule

namespace berth {

void use_papers() {
  graph::add_forms_of_papers();
  for (const char* const name : {"chen", "checkmate", "knapsack", "monet"})
    schedule::add_recomputation_rule({name, schedule::plan_named});
  schedule::offload::add_offload_rule({"vdnn", schedule::offload::vdnn_plan});
  schedule::offload::add_offload_rule({"dymem", schedule::offload::dymem_plan});
}

}  // namespace berth
