#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"
#include "csrc/schedule/order/order.h"

#include <functional>
#include <vector>

namespace berth::schedule {

struct Reordered {
  graph::Schedule schedule;
  std::vector<graph::OperatorId> first_runs;  // operators as they run first
};

// Orders all that a schedule runs, also what it recomputes, for the least peak. What there is room
// for within the budget then is no longer recomputed, the dearest first. Takes no longer than
// before and, with each buffer dropped behind its last use, needs no more. `schedule` is one that
// the referee allows, without copies. `how` is for the planner of orders; `stop` is asked before
// each run that may be left out. O(runs that are not the first x graph) behind the order.
[[nodiscard]] Reordered reorder(
    const graph::Graph& graph, const graph::Schedule& schedule, Bytes budget, OrderOptions how,
    const std::function<bool()>& stop = [] { return false; });

}  // namespace berth::schedule
