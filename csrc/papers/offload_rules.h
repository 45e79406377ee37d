#pragma once

#include "csrc/schedule/offload/offload_plan.h"
#include "csrc/schedule/offload/problem.h"

namespace berth::schedule::offload {

// Published rules, as we read them. Neither knows a budget. O(readers log values).

// vDNN (Rhu et al., MICRO 2016), its rule for convolutions: their inputs go to the host while the
// last forward reader runs, and come back one operator before they are used. Compute waits at the
// end of each operator for the copies that began with it.
[[nodiscard]] OffloadPlan vdnn_plan(const Problem& problem);

// Dymem: the inputs of convolutions, pooling and activations go to the host while the last forward
// reader runs; compute waits once, at the end of the forward part. They come back in the order of
// their use, as long as at most two inputs of convolutions are on the device ahead of their use.
// The published order is depth first: so let the problem's be.
[[nodiscard]] OffloadPlan dymem_plan(const Problem& problem);

}  // namespace berth::schedule::offload
