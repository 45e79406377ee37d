#pragma once

#include "csrc/graph/graph.h"
#include "csrc/schedule/order/problem.h"

#include <vector>

namespace berth::schedule {

// The problem of ordering a graph's operators, each by one alternative (`choice`; empty: the
// first). A storage is one value: from the first write to it to the last read of its last version,
// since later writes are made in its bytes. Residents are the constant. Throws Error(kInput) for
// what is no graph.
[[nodiscard]] OrderProblem order_problem(const graph::Graph& graph,
                                         const std::vector<std::uint32_t>& choice = {});

}  // namespace berth::schedule
