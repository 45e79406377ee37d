#pragma once

#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"
#include "csrc/torch/step/instructions.h"
#include "csrc/torch/step/program.h"

#include <cstdint>
#include <vector>

namespace berth::torch::step {

// A call, or some elements of the lists of one that does the same for each element.
struct Part {
  static constexpr std::uint32_t kWhole = ~std::uint32_t{0};
  std::uint32_t call = 0;
  std::uint32_t first = 0, count = kWhole;  // elements
};

// A program as the planners see it. Operators are calls or parts of them, in the order of the
// program; one more, the last, is the end of the step, which takes what outlives it.
struct ProgramGraph {
  graph::Graph graph;
  std::vector<Part> parts;  // by operator, without the last
  // By operator and operand (those of its part): which of the operator's reads it is; kNever where
  // there is no tensor, and for state that no result depends on and nobody else uses: that only
  // control edges know of.
  std::vector<std::vector<std::uint32_t>> reads;
  // By operator and result tensor: which of the operator's writes it is; kNever for one that is no
  // new storage.
  std::vector<std::vector<std::uint32_t>> writes;
  // By storage of the program: the one of the graph that it is. A result that takes the bytes of an
  // operand (Call::twin) is a later version of that.
  std::vector<graph::StorageId> room;
  // By operator and write: the storage of the program whose version it makes.
  std::vector<std::vector<StorageNumber>> made;
};

struct GraphForm {
  // Whether results take the bytes of operands where calls have twins.
  bool twins = true;
  // Whether calls that do the same for each element of long lists are several operators, so that
  // what an element needs may go before the next one is there.
  bool split = false;
};

// Whether some call's lists can be taken apart.
[[nodiscard]] bool can_split(const Program& program);

// Sizes are rounded up to `alignment`, as the allocator rounds. Control edges keep the draws from
// generators in turn, and behind a value that is read back all that the body called after it, which
// may depend on it. What was there before the step and is afterwards is resident, and what writes
// it changes state.
[[nodiscard]] ProgramGraph graph_of(const Program& program, Bytes alignment, const GraphForm& form);

// What an executor does to follow the schedule, in no more than `most` bytes.
[[nodiscard]] Instructions instructions_of(const Program& program, const ProgramGraph& graph,
                                           const graph::Schedule& schedule, Bytes most);

}  // namespace berth::torch::step
