#pragma once

#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"
#include "csrc/schedule/recomputation/model.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace berth::schedule {

// A graph in the stage form, by our own rules, and how to find one in the other.
//
// With a backward part, stage 0 is all before its first operator in the order, or so much more of
// the order as is asked for, and each operator from there on ends a stage of its own. Without one
// each operator has a stage, but that none begins between a result and the operator that writes
// over it. Results of operators of stage 0 are what can be kept or recomputed; all others live from
// their first write to their last read, as in any schedule. An operator may be recomputed where it
// is not random, changes no state, waits for nobody and is no collective, and only as long as what
// it reads of residents has not changed. Bytes are bytes, costs nanoseconds.
struct StageGraph {
  static constexpr graph::OperatorId kNoOperator = ~graph::OperatorId{0};

  StageProblem problem;
  std::vector<graph::OperatorId> order;
  std::size_t border = 0;  // operators of stage 0; all where there is no backward part
  // By position of the order: where the operator runs first, or the stage that it ends.
  std::vector<std::uint32_t> stage;
  std::vector<graph::OperatorId> operators;  // by node; none: an input, which is there at first
  std::vector<graph::ValueId> values;        // by value
};

// `order` is a legal order of the graph; empty: as recorded, else by number. `least_border`: so
// many operators of it are in stage 0 at least. Throws Error(kInput) for what is no graph or no
// order, and for a step too large for the stage form. O((operators + reads + writes) log of them).
[[nodiscard]] StageGraph stage_graph(const graph::Graph& graph,
                                     std::vector<graph::OperatorId> order, Bytes budget,
                                     std::size_t least_border = 0);

// The steps of a plan. What it costs is the referee's to say.
[[nodiscard]] graph::Schedule to_schedule(const graph::Graph& graph, const StageGraph& stages,
                                          const Recomputation& plan);

}  // namespace berth::schedule
