#pragma once

#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace berth::schedule {

// A schedule as a graph of its own: each run is an operator, with the alternative that it takes as
// its only one, each buffer a storage. So what is recomputed can be ordered, kept or copied like
// all else, by planners that know nothing of it. When bytes are copied or dropped is not part of
// it.
//
// `graph.order` is the order of the runs in the schedule. A run after an operator's first belongs
// to the backward part.
struct Unrolled {
  struct Run {
    graph::OperatorId op = 0;
    std::uint32_t alternative = 0;
  };
  graph::Graph graph;
  std::vector<Run> runs;                   // by operator of `graph`
  std::vector<graph::StorageId> storages;  // of the buffers, by storage of `graph`
};

// `schedule` is one that the referee allows. O((steps + reads + writes) log of them).
[[nodiscard]] Unrolled unroll(const graph::Graph& graph, const graph::Schedule& schedule);

// What a schedule of the unrolled graph is for the graph itself.
[[nodiscard]] graph::Schedule rolled_up(const Unrolled& unrolled, graph::Schedule schedule,
                                        std::uint64_t graph_hash);

// Without one of the runs after an operator's first: what it makes is read where the run before it
// left it. Nothing where that was written over. O(operators + reads + writes).
[[nodiscard]] std::optional<Unrolled> without(const Unrolled& unrolled, graph::OperatorId run);

// The operators of the graph itself as they run first, where its runs are in this order.
[[nodiscard]] std::vector<graph::OperatorId> first_runs(const Unrolled& unrolled,
                                                        std::span<const graph::OperatorId> order);

}  // namespace berth::schedule
