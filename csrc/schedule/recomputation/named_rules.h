#pragma once

#include "csrc/graph/graph.h"
#include "csrc/schedule/recomputation/from_graph.h"
#include "csrc/schedule/recomputation/model.h"

#include <berth/schedule.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace berth::schedule {

// A planner of others for what to keep of a step within its problem's budget, in the step's order:
// an engine of plan_step() by its name.
struct NamedRecomputationRule {
  std::string name;
  // The cheapest plan that fits; nothing: none does. `stop` is asked between plans.
  std::optional<Recomputation> (*plan)(const std::string& name, const graph::Graph& graph,
                                       const StageGraph& stages, const PlannerOptions& options,
                                       const std::function<bool()>& stop);
};

// From now on the rule is an engine, for ever. A name that is there already is ignored. Any thread.
void add_recomputation_rule(const NamedRecomputationRule& rule);
// In the order in which they were added.
[[nodiscard]] std::vector<NamedRecomputationRule> recomputation_rules();

}  // namespace berth::schedule
