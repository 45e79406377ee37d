#pragma once

#include <berth/graph.h>
#include <berth/referee.h>
#include <berth/schedule.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace berth::schedule {

// The rounds of a step with several forward and backward parts (gradient accumulation), as ranges
// of positions in its order. One range where it has one of each.
[[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> rounds_of(const graph::Graph& graph);

// plan_step() for such steps as well: planners of recomputation know one forward part. Each round
// is planned by itself, with all that other rounds need as residents. The schedules one after the
// other are one of the step, which the planner of the whole step then begins with. Half of the time
// is for the rounds. With addresses, and by other engines than "auto", it is plan_step().
[[nodiscard]] StepResult plan_rounds(const graph::Graph& graph, const StepOptions& options);

}  // namespace berth::schedule
