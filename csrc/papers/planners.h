#pragma once

#include "csrc/papers/checkmate_engine.h"
#include "csrc/schedule/recomputation/from_graph.h"
#include "csrc/schedule/recomputation/model.h"

#include <berth/schedule.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace berth::schedule {

struct BaselinePlan {
  std::optional<Recomputation> plan;  // the cheapest that fits; nothing: none does
  std::size_t offered = 0;            // plans that the rule gave
  std::optional<CheckmateResult> checkmate;
};

// What others keep of a step and recompute within the problem's budget, by name: "chen",
// "checkmate", "knapsack", "monet". Each of their plans is priced by our account, so that they
// differ in what they choose alone. Takes the step's order as it is. Of the options, the time limit
// is that of all of Checkmate's programs together, and of MONeT's search; iterations are the
// search's moves. `stop` is asked between plans.
//
// Throws Error(kUsage) for another name, and for "checkmate" where there is no solver.
[[nodiscard]] BaselinePlan plan_baseline(
    const std::string& engine, const graph::Graph& graph, const StageGraph& stages,
    const PlannerOptions& options, const std::function<bool()>& stop = [] { return false; });

}  // namespace berth::schedule
