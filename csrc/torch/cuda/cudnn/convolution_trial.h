#pragma once

#include "csrc/graph/algorithm_cache.h"
#include "csrc/torch/cuda/cudnn/convolution_call.h"
#include "csrc/torch/step/algorithms.h"

#include <berth/bytes.h>

#include <c10/core/Device.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace berth::torch::cudnn {

// Algorithms that are tried of each convolution of a call.
inline constexpr std::size_t kMostTried = 16;

[[nodiscard]] std::string device_name(c10::Device device);

// Runs the call as libtorch does and by each algorithm of cuDNN's, in operands that are made for
// it, on the current stream of the current device: times by events, workspaces as the allocator
// counts them, bits compared on the host. Of a call of two convolutions each is tried alone, then
// put together: times add up, workspaces share their bytes, and the best of the pairs stay. Takes
// at most `room` bytes; an algorithm that needs more is left out. Nothing where the operands do
// not fit. Waits for the device.
//
// The operands are noise with all bits of the mantissa in use: another order of sums shows in it
// for certain, while the ones of a step may be mostly zeros. They are made after the step, since
// then its memory is free: trying within it would raise the peak.
[[nodiscard]] std::optional<graph::AlgorithmProfile> measure_algorithms(const Calls& calls,
                                                                        const step::Call& call,
                                                                        const ConvolutionCall& of,
                                                                        c10::Device device,
                                                                        Bytes room);

// Runs the call by that algorithm, and not where it takes more workspace than that. Its plans are
// built when they are first needed.
[[nodiscard]] std::shared_ptr<const step::LibraryAlgorithm> algorithm_of(
    const Calls& calls, const ConvolutionCall& of, const graph::Algorithm& algorithm);

}  // namespace berth::torch::cudnn
