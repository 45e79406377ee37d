#pragma once

#include "csrc/torch/cuda/cudnn/convolution.h"
#include "csrc/torch/step/record.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace berth::torch::cudnn {

// Where a call has a tensor: one of its operands or one of its results.
struct Place {
  bool result = false;
  std::uint32_t number = 0;
};

// One of the convolutions that a call is made of.
struct Piece {
  Convolution convolution;
  Place x, w, y;
};

// A call of libtorch's in terms of cuDNN: one piece forward, up to two backward, and a bias beside
// them, which libtorch adds and sums by itself.
struct ConvolutionCall {
  std::vector<Piece> pieces;
  std::optional<std::uint32_t> bias;           // operand that is added to the result
  std::optional<std::uint32_t> bias_gradient;  // result: operand 0, summed over all but its 2nd

  // By which two calls are told to be the same.
  [[nodiscard]] std::string text() const;
};

struct ConvolutionMode {
  bool deterministic = false;
  bool tf32 = true;
};

// What the call is; nothing where it is no convolution of images or volumes in a type that cuDNN
// has, dense and on one device. Handles aten::convolution, aten::convolution_backward (transposed
// ones, too) and aten::cudnn_convolution, which says its mode itself.
[[nodiscard]] std::optional<ConvolutionCall> convolution_call(const step::Call& call,
                                                              const ConvolutionMode& mode);

}  // namespace berth::torch::cudnn
