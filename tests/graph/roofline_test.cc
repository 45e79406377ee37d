#include "csrc/graph/roofline.h"

#include "tests/catch.h"

#include <array>
#include <vector>

namespace berth::graph {
namespace {

using Shape = std::vector<std::int64_t>;

// One flop and one byte a nanosecond, ten of 16-bit numbers, and no launch.
constexpr Roofline kSlow{
    .flops_per_second = 1e9, .bytes_per_second = 1e9, .least_ns = 0, .half_flops_per_second = 1e10};

// A product of two matrices.
std::uint64_t product_ns(bool half, const Roofline& device, const char* name = "aten::mm") {
  const Shape left{100, 200}, right{200, 50}, made{100, 50};
  const std::array<RooflineOperand, 3> operands{
      {{.shape = left, .bytes = 80, .position = 0, .half = half},
       {.shape = right, .bytes = 40, .position = 1, .half = half},
       {.shape = made, .bytes = 20, .output = true, .half = half}}};
  return ns_by_roofline(name, operands, device);
}

constexpr std::uint64_t kFlops = 2 * 100 * 200 * 50;

}  // namespace

TEST_CASE("Products of 16-bit numbers have a roof of their own, where it is known",
          "[graph][roofline]") {
  CHECK(product_ns(false, kSlow) == kFlops);
  CHECK(product_ns(true, kSlow) == kFlops / 10);
  Roofline same = kSlow;
  same.half_flops_per_second = 0;
  CHECK(product_ns(true, same) == kFlops);
}

TEST_CASE("The overload of an operator does not change its time, other operators move bytes",
          "[graph][roofline]") {
  CHECK(product_ns(false, kSlow, "aten::mm.dtype") == kFlops);
  CHECK(product_ns(false, kSlow, "aten::linear.out") != 0);
  CHECK(product_ns(false, kSlow, "aten::add.Tensor") == 140);
  Roofline launches = kSlow;
  launches.least_ns = 5000;
  CHECK(product_ns(false, launches, "aten::add.Tensor") == 5000);
}

}  // namespace berth::graph
