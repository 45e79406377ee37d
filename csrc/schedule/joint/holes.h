#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"

#include <cstddef>

namespace berth::schedule {

// With all addresses fixed, gives workspaces to operators that are faster with them: each takes its
// fastest alternative, among those that read and write the same, whose workspace fits the largest
// piece of the arena that is free while it runs. The arena may grow to `capacity`. What a search
// counts is bytes; here is what is left of them in one piece, also of what was kept away from it.
//
// Returns how many operators run by another alternative; 0 leaves the schedule as it is, also where
// the referee finds it no faster. Requires a schedule that he allows. O(lifetimes log of them +
// what is alive at each operator that has a faster alternative).
std::size_t use_holes(const graph::Graph& graph, graph::Schedule& schedule, Bytes capacity,
                      const graph::CopyRates& rates = {});

}  // namespace berth::schedule
