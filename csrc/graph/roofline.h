#pragma once

#include "csrc/core/bytes.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace berth::graph {

// A device as a roof over two slopes: what an operator takes at least, by its arithmetic or by the
// bytes that it moves. A model of times, not a measurement. The defaults are an A100 with 40 GB.
struct Roofline {
  double flops_per_second = 19.5e12;  // of fp32, without tensor cores
  double bytes_per_second = 1.555e12;
  double least_ns = 2000;  // of any kernel: its launch
  // Of products of 16-bit numbers; 0: the same as of others.
  double half_flops_per_second = 0;
};

// An operand of an operator as far as its time depends on it.
struct RooflineOperand {
  std::span<const std::int64_t> shape = {};
  Bytes bytes = 0;
  bool output = false;
  std::uint16_t position = 0;  // among the arguments, or among the results
  bool half = false;           // of 16-bit numbers
};

// Nanoseconds of an operator: what its products, convolutions or attention take by the shapes of
// the operands, or moving the operands once, whichever is longer. An operator without products
// moves its operands.
[[nodiscard]] std::uint64_t ns_by_roofline(std::string_view name,
                                           std::span<const RooflineOperand> operands,
                                           const Roofline& device);

}  // namespace berth::graph
