#pragma once

#include "csrc/trace/trace.h"

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace berth::test {

// What operators of a run did to which blocks, rebuilt from a trace recorded with
// BERTH_RECORD=operators: that a recording holds what planners of order, recomputation and offload
// need, tests ask of this.
//
// Operators and blocks are numbered in order of their first entry. Operators nest: where one calls
// another, both are listed for the operands that both have; `parent` tells them apart. Built once;
// plain data.
class OperatorGraph {
 public:
  using OperatorIndex = std::uint32_t;
  using BlockIndex = std::uint32_t;

  struct Operator {
    trace::OperatorBegin begin;
    trace::ThreadId thread = 0;
    trace::Tick first_tick = 0, last_tick = 0;  // of begin and end; equal where the end is missing
    std::uint64_t begin_ns = 0, end_ns = 0;     // host time
    std::optional<OperatorIndex> parent;        // that called it, on its thread
    std::optional<OperatorIndex> forward;       // of a backward operator: whose gradient it takes
    std::vector<OperatorIndex> backward;        // of a forward operator: those that name it
    std::vector<trace::Operand> arguments, results;  // in order
  };

  // Lists of operators ascend and have each once.
  struct Block {
    trace::BlockId id = 0;
    Bytes bytes = 0;                         // as asked; 0 where it was made before the recording
    std::optional<trace::Tick> born, freed;  // nothing where not recorded
    trace::RoleKind role = trace::RoleKind::kUnknown;  // the last that was recorded
    std::optional<OperatorIndex> requested_in;         // innermost that ran where it was asked for
    std::optional<OperatorIndex> made_by;              // innermost that first wrote it
    std::vector<OperatorIndex> read_by;                // took it and saw its content
    std::vector<OperatorIndex> changed_by;             // wrote to it after it was made
    std::optional<OperatorIndex> last_used_by;  // innermost that last took it, else its maker
  };

  // O(entries).
  explicit OperatorGraph(const Trace& trace);

  [[nodiscard]] std::span<const Operator> operators() const noexcept { return operators_; }
  [[nodiscard]] std::span<const Block> blocks() const noexcept { return blocks_; }

  // By the ids of the trace; null where there is none.
  [[nodiscard]] const Operator* find_operator(std::uint64_t op) const noexcept;
  [[nodiscard]] const Block* find_block(trace::BlockId id) const noexcept;

 private:
  friend class OperatorGraphBuilder;

  std::vector<Operator> operators_;
  std::vector<Block> blocks_;
  std::unordered_map<std::uint64_t, OperatorIndex> operator_index_;
  std::unordered_map<trace::BlockId, BlockIndex> block_index_;
};

}  // namespace berth::test
