#pragma once

#include "csrc/plan/plan.h"
#include "csrc/trace/step.h"

namespace berth {

// A plan of `step` without offsets: sequences, rounded sizes, marks, edges, origins; every planned
// slot at offset 0. `alignment` is the allocator's. The planner's driver fills in offsets, arena
// bytes and bound.
[[nodiscard]] Plan skeleton(const Step& step, const Trace& trace, Bytes alignment);

}  // namespace berth
