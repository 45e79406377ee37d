#pragma once

#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"
#include "csrc/schedule/joint/addresses.h"

namespace berth::schedule {

// place_addresses(), for a schedule whose runs may come in another order. Where its arena is above
// what is alive at one time and above the capacity, orders are tried that have less alive beside
// the peak and no higher one: they leave the placement more room. A schedule with copies keeps its
// order. Half of the time and of the iterations is for the first placement; the smallest arena
// stays, of the first where several are as small.
Addresses place_flattened(const graph::Graph& graph, graph::Schedule& schedule,
                          const AddressOptions& options = {});

}  // namespace berth::schedule
