#pragma once

#include <berth/graph.h>
#include <berth/referee.h>
#include <berth/schedule.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace berth::schedule {

// The passes of a step with several forward and backward parts (gradient accumulation), as ranges
// of positions in its order. One range where it has one of each.
[[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> passes_of(const graph::Graph& graph);

// plan_step() for steps with one pass. For others it recomputes values of the first forward part
// alone; see passes.cc for what plan_step() does with those.
[[nodiscard]] StepResult plan_whole(const graph::Graph& graph, const StepOptions& options);

}  // namespace berth::schedule
