#pragma once

#include "csrc/graph/graph.h"

#include <berth/referee.h>

#include <span>
#include <vector>

namespace berth::graph {

// The schedule that runs each operator once, in this order and by the alternative that was recorded
// (its first alternative). Each storage has the buffer of its own number; it is dropped after the
// last operator that reads or writes it, an input that none does before all. Throws Error(kUsage)
// for an order that does not name each operator once; whether it is legal says the referee. O(reads
// + writes).
[[nodiscard]] Schedule schedule_of_order(const Graph& graph, std::span<const OperatorId> order);

// By buffer, whether the schedule begins with it on the host: a resident whose first copy is one
// in. O(steps).
[[nodiscard]] std::vector<bool> begin_on_host(const Graph& graph, const Schedule& schedule);

}  // namespace berth::graph
