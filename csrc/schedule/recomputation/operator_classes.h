#pragma once

#include "csrc/facts/operator_kinds.h"

#include <string_view>

// What PyTorch's partitioner asks of an operator, told by the name that a recording has: its own
// lists are of the operators that those decompose into.
namespace berth::schedule {

// Products, convolutions and attention: worth more than their results' bytes.
[[nodiscard]] constexpr bool is_compute_intensive(std::string_view name) noexcept {
  return facts::detail::is_one_of(name, {"aten::mm",
                                         "aten::bmm",
                                         "aten::addmm",
                                         "aten::baddbmm",
                                         "aten::addbmm",
                                         "aten::matmul",
                                         "aten::linear",
                                         "aten::einsum",
                                         "aten::conv1d",
                                         "aten::conv2d",
                                         "aten::conv3d",
                                         "aten::convolution",
                                         "aten::_convolution",
                                         "aten::conv_transpose2d",
                                         "aten::cudnn_convolution",
                                         "aten::convolution_backward",
                                         "aten::scaled_dot_product_attention",
                                         "aten::_scaled_dot_product_flash_attention",
                                         "aten::_scaled_dot_product_efficient_attention",
                                         "aten::_flash_attention_forward",
                                         "aten::_efficient_attention_forward",
                                         "aten::upsample_bilinear2d",
                                         "aten::lstm",
                                         "aten::gru",
                                         "aten::mkldnn_convolution",
                                         "aten::thnn_conv2d"});
}

// Whether the compiler can make it part of a kernel with what is around it.
[[nodiscard]] constexpr bool is_fusible(std::string_view name) noexcept {
  return !is_compute_intensive(name) &&
         !facts::detail::is_one_of(
             name,
             {"aten::cat", "aten::max_pool2d", "aten::max_pool2d_with_indices", "aten::max_pool3d",
              "aten::avg_pool2d", "aten::adaptive_avg_pool2d", "aten::adaptive_avg_pool3d",
              "aten::_adaptive_avg_pool2d", "aten::sort", "aten::topk", "aten::cumsum",
              "aten::scatter", "aten::scatter_add", "aten::upsample_nearest2d"});
}

}  // namespace berth::schedule
