#pragma once

#include "csrc/plan/plan.h"
#include "csrc/trace/step.h"

#include <berth/place.h>

namespace berth {

// The planning problem of a plan without offsets (see skeleton()): its planned slots in order,
// sequence by sequence.
[[nodiscard]] Problem make_problem(const Plan& plan);

// That plan with a placement of its problem, verified against its step: `options` are what the
// placement was made with. A placement that PlaceOptions::improved hands out becomes a plan here.
// Throws Error(kUsage) where the verifier refuses it (a bug in berth; nothing is served).
[[nodiscard]] Plan with_placement(Plan skeleton, const Step& step, const Placement& placement,
                                  const PlaceOptions& options);

// Plans a step: skeleton, placement, verification. The plan's arena_bytes, lower_bound, engine,
// seed and plan_seconds are set. Throws as with_placement() does.
[[nodiscard]] Plan plan_step(const Step& step, const Trace& trace, Bytes alignment,
                             const PlaceOptions& options = {});

}  // namespace berth
