#pragma once

#include "csrc/graph/roofline.h"
#include "csrc/trace/trace.h"

namespace berth::bench {

using graph::Roofline;

// Gives every operator of a recording that computes and calls none that does a device time of its
// own, by graph::ns_by_roofline(). For recordings on the stand-in, whose kernels take no
// time; a model, and to be called one wherever its figures are shown.
void time_by_roofline(Trace& trace, const Roofline& device = {});

}  // namespace berth::bench
