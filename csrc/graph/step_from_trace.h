#pragma once

#include "csrc/graph/from_trace.h"
#include "csrc/trace/traced_run.h"

#include <optional>
#include <string_view>

namespace berth::graph {

// The range of a trace that a step program makes around a body that runs as written.
inline constexpr std::string_view kStepRange = "berth.StepProgram";

// The step that a step program ran as written in a recorded run, as the program itself has it: its
// save_graph() as written gives the same operators, operands, sizes and edges, so that a schedule
// of the one is one of the other. Nothing where the trace has no two such steps that are the same:
// a run without step programs.
//
// Operators are the calls of the step's thread, and those of backward on others. What the body
// fills itself comes from outside, as all that was there before; what is the same block in two
// steps and outlives both is resident. One operator more, the last, is the end of the step.
//
// Memory that is not the recorded device's is no part of it: a step on CUDA that takes some of the
// host's is none of the program's. Of the result `lifetimes` is empty. O(entries log entries).
[[nodiscard]] std::optional<TracedGraph> step_from_trace(const Trace& trace, const TracedRun& run);

}  // namespace berth::graph
