#pragma once

#include "csrc/torch/step/program.h"

namespace berth::torch::step {

// In a dry run, where kernels take no time: gives the program's calls the times that a model of the
// real GPU has for them (BERTH_STANDIN_ROOFLINE; see csrc/graph/roofline.h). Elsewhere it does
// nothing.
void time_by_roofline(Program& program);

}  // namespace berth::torch::step
