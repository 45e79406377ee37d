#pragma once

#include "csrc/plan/plan.h"
#include "csrc/trace/step.h"

namespace berth {

// A plan of `step` without offsets: a root for each lane that asks for anything, rounded sizes,
// marks, edges, origins; every planned slot at offset 0. `alignment` is the allocator's. The
// planner's driver fills in offsets, arena bytes and bound.
//
// `trace` is the one that the step was cut from. An origin is the innermost operator that was open
// on the asking thread, else its innermost range (a module before a phase). Edges that a plan
// cannot hold (see Plan's caps) are left out: those lanes stay apart. O(entries).
//
// Throws Error(kUsage) for an alignment that no plan may have, or a request that is larger than
// kMaxBytes, of no lane, or out of order.
[[nodiscard]] Plan skeleton(const Step& step, const Trace& trace, Bytes alignment);

}  // namespace berth
