#pragma once

#include "csrc/graph/graph.h"
#include "csrc/schedule/recomputation/from_graph.h"

#include <cstddef>
#include <functional>

namespace berth::schedule {

// What torch.compile keeps for the backward part under `activation_memory_budget`, as of PyTorch
// 2.11 (torch/_functorch/partitioners.py, choose_saved_values_set and solve_min_cut, and
// _activation_checkpointing/knapsack.py): the named baseline, on a recorded step.
//
// What is saved is a minimum cut between what may not be recomputed and what the backward part
// reads; values weigh more the further they are from it, and twice where a fused kernel would never
// write them. Three cuts forbid less and less to be recomputed: all but what fuses and is wanted by
// no product; all but what fuses; all but products, convolutions and what is random. Reductions to
// a quarter of their inputs are never recomputed. A budget is a share of what the first cut saves.
// Where not even the third fits it, a knapsack over what that one forbids says what stays
// forbidden: the most time within the share, by sizes of a ten-thousandth of the whole.
//
// Ours, where a recorded step differs from theirs: times of operators are those recorded, not
// counts of operations; what fuses is told by names (a deny list, since recorded operators are not
// decomposed); their bans of long chains and of distant uses, which are about fused kernels, are
// left out; and what is random is not recomputed. What is not saved is recomputed once, for the
// first that wants it, as they order it.
//
// Budgets are `grid` + 1 shares from 0 to 1, in falling order; each plan that differs from the one
// before goes to `visit`. None where the step has no backward part. `stop` is asked before each.
void knapsack_plans(
    const graph::Graph& graph, const StageGraph& stages, std::size_t grid,
    const std::function<void(const Recomputation&)>& visit,
    const std::function<bool()>& stop = [] { return false; });

}  // namespace berth::schedule
