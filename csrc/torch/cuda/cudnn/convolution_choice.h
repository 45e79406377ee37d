#pragma once

namespace berth::torch::cudnn {

// From now on step programs choose among cuDNN's algorithms for the convolutions of their steps.
//
// Each convolution is measured once for each device, version of cuDNN and shape, right after a
// program was made of two steps: by itself, and by each algorithm that cuDNN's heuristics name, in
// operands made for that, in memory that the step had taken and no longer has. Whether an algorithm
// gives the bits of the operator is looked at there, too. Thread-safe; harmless without cuDNN.
void offer_convolutions();

}  // namespace berth::torch::cudnn
