#pragma once

#include "csrc/plan/build_kinds.h"
#include "csrc/plan/plan.h"
#include "csrc/trace/step.h"

#include <berth/place.h>

#include <span>

namespace berth {

// The planning problem of a plan without offsets (see skeleton()): its planned slots in order,
// sequence by sequence.
[[nodiscard]] Problem make_problem(const Plan& plan);

// The same of several kinds of steps, in a time of its own, in which blocks that live through whole
// steps of other kinds end in all steps at the same tick.
[[nodiscard]] Problem make_problem(const KindPlan& kinds);

// That plan with a placement of its problem, verified against its step: `options` are what the
// placement was made with. A placement that PlaceOptions::improved hands out becomes a plan here.
// Throws Error(kUsage) where the verifier refuses it (a bug in berth; nothing is served).
[[nodiscard]] Plan with_placement(Plan skeleton, const Step& step, const Placement& placement,
                                  const PlaceOptions& options);
// Of kinds, verified by itself.
[[nodiscard]] Plan with_placement(Plan skeleton, const Placement& placement,
                                  const PlaceOptions& options);

// Plans kinds of steps. As plan_step().
[[nodiscard]] Plan plan_kinds(std::span<const StepKind> kinds, const trace::Program& program,
                              Bytes alignment, const PlaceOptions& options = {});

// Plans a step: skeleton, placement, verification. The plan's arena_bytes, lower_bound, engine,
// seed and plan_seconds are set. Throws as with_placement() does.
[[nodiscard]] Plan plan_step(const Step& step, const Trace& trace, Bytes alignment,
                             const PlaceOptions& options = {});

}  // namespace berth
