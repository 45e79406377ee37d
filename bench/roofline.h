#pragma once

#include "csrc/trace/trace.h"

namespace berth::bench {

// A device as a roof over two slopes; the defaults are an A100 with 40 GB in fp32.
struct Roofline {
  double flops_per_second = 19.5e12;
  double bytes_per_second = 1.555e12;
  double least_ns = 2000;  // of any kernel: its launch
};

// Gives every operator of a recording that computes and calls none that does a device time of its
// own: what its products, convolutions or attention take by the shapes of its operands, or moving
// those operands once, whichever is longer. For recordings on the stand-in, whose kernels take no
// time; a model, and to be called one wherever its figures are shown.
void time_by_roofline(Trace& trace, const Roofline& device = {});

}  // namespace berth::bench
