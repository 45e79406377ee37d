#pragma once

#include "csrc/plan/plan.h"
#include "csrc/trace/step.h"

#include <berth/place.h>

namespace berth {

// The planning problem of a plan without offsets (see skeleton()): its planned slots in order,
// sequence by sequence.
[[nodiscard]] Problem make_problem(const Plan& plan);

// Plans a step: skeleton, placement, verification. The plan's arena_bytes, lower_bound, engine,
// seed and plan_seconds are set. Throws Error(kUsage) where the verifier refuses what the planner
// made (a bug in berth; nothing is served).
[[nodiscard]] Plan plan_step(const Step& step, const Trace& trace, Bytes alignment,
                             const PlaceOptions& options = {});

}  // namespace berth
