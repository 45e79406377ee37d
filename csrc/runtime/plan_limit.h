#pragma once

#include "csrc/core/bytes.h"
#include "csrc/plan/build_kinds.h"
#include "csrc/plan/lookup.h"
#include "csrc/plan/plan.h"
#include "csrc/trace/step_kinds.h"

#include <optional>
#include <span>

namespace berth {

// How large the arena of a plan may be: 1.1 times the largest live bytes of the run so far. So a
// plan never holds much more than the program needs, whatever its kinds of steps and lanes leave
// alive at one time.
[[nodiscard]] Bytes most_arena_bytes(Bytes live_peak) noexcept;

// Whether all of the arena may never be in use at one time: blocks leave parts of their buckets,
// and lanes have their peaks at different times.
[[nodiscard]] bool may_need_less(const PlanLookup& plan) noexcept;

// A plan without offsets of `kinds`, the ones that serve most first, whose bound is at most `most`,
// and at most 1.1 times what one of their steps has alive, 1.02 times with what it leaves to later
// ones: kinds that do each have bytes of their own for it, and are never there all at once. Where
// the bound of all is larger, what outlives its step is left to the pool; where that does not
// suffice, half of the kinds go, and half of those. Nothing where no kind fits. O(log kinds) times
// skeleton() and lower_bound().
[[nodiscard]] std::optional<KindPlan> skeleton_within(std::span<const StepKind> kinds,
                                                      const trace::Program& program,
                                                      Bytes alignment, Bytes most);

// The same of a cycle of steps: what crosses its end is left to the pool first, then whole lanes,
// the ones that make the fewest requests first. Nothing where the busiest lane alone does not fit.
[[nodiscard]] std::optional<Plan> within(Plan skeleton, Bytes most);

}  // namespace berth
