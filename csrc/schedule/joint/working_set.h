#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/graph.h"

#include <string>
#include <vector>

namespace berth::schedule {

// What an operator has on the device while it runs by one alternative, residents aside: its reads,
// results and workspace; a result that can take over a read counts once.
[[nodiscard]] Bytes needed(const graph::Graph& graph, const graph::Alternative& taken);

// What the largest operator of a step needs alone, by its smallest alternative, beside what is
// resident: less is enough for no schedule.
struct LeastBudget {
  Bytes bytes = 0;
  std::string largest;  // in words
};
[[nodiscard]] LeastBudget least_budget(const graph::Graph& graph);
// The same where residents may be on the host while no operator uses them, as far as `movable` says
// by storage.
[[nodiscard]] LeastBudget least_budget(const graph::Graph& graph, const std::vector<bool>& movable);

}  // namespace berth::schedule
