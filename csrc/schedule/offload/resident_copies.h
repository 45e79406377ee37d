#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/schedule.h"

#include <berth/referee.h>

#include <optional>
#include <vector>

// Residents on the host between their uses.
namespace berth::schedule::offload {

// A schedule that copies residents to the host while no operator uses them, so that the step fits
// the budget. `schedule` copies none of them. Of `movable` residents, by storage, those leave that
// are used last, among the uses of this step and of the next (L. A. Belady, IBM Systems Journal
// 5(2), 1966). A copy out begins behind the last use before it. A copy in begins so early that it
// ends before the use, as far as there is room for its bytes. So that there is room, `ahead` bytes
// of the budget are left to copies in.
//
// The result is empty where one operator's residents and the step's values exceed the budget.
// Otherwise it begins and ends with the same residents on the device. The referee says whether it
// fits, since bytes that leave are there until their copy ends. O(uses log residents + steps).
[[nodiscard]] std::optional<graph::Schedule> with_resident_copies(const graph::Graph& graph,
                                                                  const graph::Schedule& schedule,
                                                                  const std::vector<bool>& movable,
                                                                  Bytes budget, Bytes ahead,
                                                                  const graph::CopyRates& rates);

// The fastest of these, over several sizes of `ahead`, that the referee lets fit the budget.
[[nodiscard]] std::optional<graph::Schedule> best_resident_copies(const graph::Graph& graph,
                                                                  const graph::Schedule& schedule,
                                                                  const std::vector<bool>& movable,
                                                                  Bytes budget,
                                                                  const graph::CopyRates& rates);

// The schedule without its copies of residents.
[[nodiscard]] graph::Schedule without_resident_copies(const graph::Graph& graph,
                                                      graph::Schedule schedule);

}  // namespace berth::schedule::offload
