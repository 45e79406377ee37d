#pragma once

#include "csrc/plan/plan.h"

namespace berth::test {

// Whether a well-formed plan of a few slots is legal, found by running it: lanes follow every
// choice of paths for a few steps, tick by tick, beside a list of all that lives; orders between
// lanes are paths in the graph of all ticks. Shares nothing with verify(). O(n^2 * ticks *
// choices).
//
// It knows nothing of caps, marks, indices and sizes: those are for named tests.
[[nodiscard]] bool is_legal_by_force(const Plan& plan);

}  // namespace berth::test
