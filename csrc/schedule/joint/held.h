#pragma once

#include "csrc/schedule/joint/working_set.h"

namespace berth::schedule {

// The most that any schedule without copies to the host has on the device while an operator runs
// for the first time, with what must be there for later ones: a value of an operator that runs once
// is held from there to its readers. Less is enough for no such schedule. Zero bytes where no value
// is held so. At most 256 searches of the graph, each O(operators + edges).
[[nodiscard]] LeastBudget least_with_held(const graph::Graph& graph);

}  // namespace berth::schedule
