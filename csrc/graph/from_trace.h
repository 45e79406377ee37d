#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/graph.h"
#include "csrc/trace/trace.h"

#include <cstdint>
#include <vector>

namespace berth::graph {

// The step of a recorded run as a graph, and what the recording knows beyond it.
//
// Operators are those that no other calls, with all that those call; numbers count up in the order
// in which they began, which is the graph's order. What only makes views or only makes room is
// none. A storage is a block: born where it is first written, resident where it is there at both
// ends of the step, an input where it is there at the beginning only. A block that is born and
// freed inside one operator is workspace of it. A block that is never an operand of any is a result
// of the one that asked for it, and read by the last one that began before it was freed. What is
// filled without an operator, as by the host, is made by an operator without time where it was
// asked for.
//
// Control edges keep the order of random numbers, of collectives and waits of the host, and keep
// behind a wait what the host asked for after it: that may depend on what it was told.
//
// Of operators whose threads run at the same time the graph says what they read and write as if one
// began when the one before had ended.
struct TracedGraph {
  // A time at which the step is looked at: 2 p + 1 while operator p of the order runs, when it had
  // most alive; 2 p between that and the one before, at most, 2 n at the end.
  using Moment = std::uint32_t;
  // Moments at which the run had the block, half-open; empty where none saw it.
  struct Lifetime {
    Moment birth = 0, end = 0;
  };

  Graph graph;
  std::vector<Lifetime> lifetimes;     // of each storage, as recorded
  std::vector<trace::BlockId> blocks;  // of each storage
  Bytes recorded_peak = 0;  // most bytes alive in the run during the step, rounded, residents too
  // Of all storages but residents: bytes times ticks from the end of the last operator that takes
  // it to its free, at most to the step's end. What only dropping references earlier gives back.
  std::uint64_t held = 0;
  std::uint32_t steps = 0;  // as recorded, whose times each operator's is the median of
};

// Cuts the step that repeats and makes a graph of it. Throws Error(kInput) where the trace has no
// operators, where nothing repeats, and for what violation() finds. O(entries log entries).
[[nodiscard]] TracedGraph graph_from_trace(const Trace& trace);

// The most bytes alive at a moment where operators run in the recorded order and storages live as
// recorded. Equals recorded_peak where no operator gives back, before it needs most, what it
// takes, and no two run at the same time; else it can be above. O(operators + storages).
[[nodiscard]] Bytes peak_as_recorded(const TracedGraph& traced);

}  // namespace berth::graph
