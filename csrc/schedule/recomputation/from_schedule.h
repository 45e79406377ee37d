#pragma once

#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"
#include "csrc/schedule/recomputation/from_graph.h"

namespace berth::schedule {

// The other way round from to_schedule(): which values a schedule has on the device, or on the
// host, when each stage ends, for a later read, and which alternative each closing operator takes.
// Nothing else of the schedule is taken over: where it makes something again elsewhere than in
// front of who wants it, the plan is another one, of another peak.
//
// `schedule` is a legal one in which operators run first in the order of `stages`, but for those
// that postpone_changes() has moved back; a start for a search, of any budget. O(steps + reads +
// stages x values / 64).
[[nodiscard]] Recomputation recomputation_of(const graph::Graph& graph, const StageGraph& stages,
                                             const graph::Schedule& schedule);

}  // namespace berth::schedule
