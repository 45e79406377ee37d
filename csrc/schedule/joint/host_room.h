#pragma once

#include "csrc/core/bytes.h"
#include "csrc/schedule/recomputation/problem.h"

#include <berth/referee.h>

namespace berth::schedule {

// The most bytes that can be copied to the host while the forward part runs, and back while the
// rest does, and that are above the budget where everything is kept. 0 for a problem without a
// backward part. One evaluation of a plan.
[[nodiscard]] Bytes host_room(const StageProblem& problem, const graph::CopyRates& rates);

// Lets a plan have so many bytes more than the budget, as if they lay on the host: when the forward
// part ends, and after it as many of them as the rest of the step has time to copy back. What the
// search then keeps beyond the budget is for copies to take away, and what is cheaper to recompute
// than to copy is recomputed: so both ways are weighed against each other. O(stages).
void add_host_room(StageProblem& problem, Bytes bytes, const graph::CopyRates& rates);

}  // namespace berth::schedule
