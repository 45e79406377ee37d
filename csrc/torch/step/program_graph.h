#pragma once

#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"
#include "csrc/torch/step/instructions.h"
#include "csrc/torch/step/program.h"

#include <cstdint>
#include <vector>

namespace berth::torch::step {

// A program as the planners see it. Operator n is call n; one more, the last, is the end of the
// step, which takes what outlives it. Storages have their numbers.
struct ProgramGraph {
  graph::Graph graph;
  // By call and operand: which of the operator's reads it is; kNever where there is no tensor, and
  // for state that no result depends on and nobody else uses: that only control edges know of.
  std::vector<std::vector<std::uint32_t>> reads;
  // By call and result tensor: which of the operator's writes it is; kNever for one that is no new
  // storage.
  std::vector<std::vector<std::uint32_t>> writes;
};

// Sizes are rounded up to `alignment`, as the allocator rounds. Control edges keep the draws from
// generators in turn, and behind a value that is read back all that the body called after it, which
// may depend on it. What was there before the step and is afterwards is resident, and what writes
// it changes state.
[[nodiscard]] ProgramGraph graph_of(const Program& program, Bytes alignment);

// What an executor does to follow the schedule, in no more than `most` bytes.
[[nodiscard]] Instructions instructions_of(const Program& program, const ProgramGraph& graph,
                                           const graph::Schedule& schedule, Bytes most);

}  // namespace berth::torch::step
