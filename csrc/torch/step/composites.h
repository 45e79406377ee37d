#pragma once

#include "csrc/torch/step/tap.h"

namespace berth::torch::step {

// Composite operators, which lie above autograd and run as others: the tap sees those. Some read
// bytes by a pointer meanwhile, and then the step must have run up to there. Those that are known
// to are told to the tap's listener themselves, as one call each. Another one that asks for bytes
// that are not there is made one of them: where what it has called so far may be called again, it
// begins anew, told. So are operators that are not libtorch's and have a kernel for autograd: it
// may do all that they do.
//
// How: a boxed kernel for each on a dispatch key above all others that libtorch keeps free, which
// is in the thread's set as long as a tap stands, or once OtherThreads sees the thread. Those of
// which libtorch's sources show that they touch no bytes have none.

// Registers the kernels of operators that have none yet. Not thread-safe.
void register_composites();
// Whether a thread may have their key.
[[nodiscard]] bool has_composites() noexcept;

}  // namespace berth::torch::step
