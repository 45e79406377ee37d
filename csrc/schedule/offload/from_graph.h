#pragma once

#include "csrc/graph/graph.h"
#include "csrc/schedule/offload/problem.h"

#include <vector>

namespace berth::schedule::offload {

// The copy problem of a graph whose operators run in `order` (empty: as recorded, else by number),
// each by one alternative (`choice`; empty: the first). A storage is one value; residents are the
// constant and never move. The backward part begins with the first backward or optimizer operator.
//
// An operator may be recomputed where its results depend on what it reads alone: no traits, none of
// its results written again, and nothing that it reads overwritten before the last operator that
// could want them, through other operators that are recomputed. Its kind is guessed from its name.
//
// Throws Error(kInput) for what is no graph, and for an order that breaks its edges.
// O((operators + reads + writes) log of them).
[[nodiscard]] Problem from_graph(const graph::Graph& graph,
                                 const std::vector<graph::OperatorId>& order = {},
                                 const std::vector<std::uint32_t>& choice = {});

// The storage of each value of that problem.
[[nodiscard]] std::vector<graph::StorageId> storages_of_values(
    const graph::Graph& graph, const std::vector<std::uint32_t>& choice = {});

}  // namespace berth::schedule::offload
