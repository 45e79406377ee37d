#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/schedule.h"

#include <berth/referee.h>

#include <optional>
#include <vector>

// Paging: what a step holds is on the host between two uses, so that the step fits a budget.
namespace berth::schedule::offload {

// A schedule that copies buffers to the host while no operator uses them. `schedule` copies none of
// the movable ones. Of the `movable` storages, residents and those of the step, those of at least
// `least_bytes` leave. Those leave first that are used last, for residents among the uses of this
// step and of the next (L. A. Belady, IBM Systems Journal 5(2), 1966). An offload begins behind the
// last use before it. A reload begins so early that it ends before the use, as far as there is
// room for its bytes. So that there is room, `ahead` bytes of the budget are left to reloads.
// What the schedule does not drop stays from its last use on.
//
// The result is empty where what one operator uses and what stays exceed the budget. Otherwise it
// begins and ends with the same residents on the device. The referee says whether it fits, since
// bytes that leave are there until their copy ends. O(uses log buffers + steps).
[[nodiscard]] std::optional<graph::Schedule> with_paging(
    const graph::Graph& graph, const graph::Schedule& schedule, const std::vector<bool>& movable,
    Bytes budget, Bytes ahead, Bytes least_bytes, const graph::CopyRates& rates);

// The fastest of these, over several values of `ahead` and `least_bytes`, that the referee lets fit
// the budget.
[[nodiscard]] std::optional<graph::Schedule> best_paging(const graph::Graph& graph,
                                                         const graph::Schedule& schedule,
                                                         const std::vector<bool>& movable,
                                                         Bytes budget,
                                                         const graph::CopyRates& rates);

// The storages that the step makes.
[[nodiscard]] std::vector<bool> made_in(const graph::Graph& graph);

// The schedule without its copies of residents.
[[nodiscard]] graph::Schedule without_resident_offloads(const graph::Graph& graph,
                                                        graph::Schedule schedule);

}  // namespace berth::schedule::offload
