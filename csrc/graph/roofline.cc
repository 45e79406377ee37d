#include "csrc/graph/roofline.h"

#include <algorithm>
#include <numeric>

namespace berth::graph {
namespace {

using Shape = std::span<const std::int64_t>;

double elements(Shape shape) {
  return std::accumulate(shape.begin(), shape.end(), 1.0, [](double all, std::int64_t one) {
    return all * static_cast<double>(one);
  });
}

class Called {
 public:
  Called(std::string_view name, std::span<const RooflineOperand> operands)
      : name_(name), operands_(operands) {}

  [[nodiscard]] double flops() const {
    const bool backward = named("_backward");
    if (named("conv")) {
      const RooflineOperand* const weight = argument(backward ? 2 : 1);
      const RooflineOperand* const made = backward ? argument(0) : result();
      if (weight == nullptr || made == nullptr || weight->shape.empty() ||
          weight->shape.front() == 0)
        return 0;
      // Backward: one of the input and one of the weight.
      return (backward ? 4.0 : 2.0) * elements(made->shape) * elements(weight->shape) /
             static_cast<double>(weight->shape.front());
    }
    if (named("dot_product") || named("efficient_attention") || named("flash_attention")) {
      const RooflineOperand* const query = argument(backward ? 1 : 0);
      const RooflineOperand* const key = argument(backward ? 2 : 1);
      if (query == nullptr || key == nullptr || key->shape.size() < 2) return 0;
      // Two products forward; five backward, which makes one of them again.
      return (backward ? 10.0 : 4.0) * elements(query->shape) *
             static_cast<double>(key->shape[key->shape.size() - 2]);
    }
    if (named("mm") || is("aten::linear") || is("aten::matmul")) {
      const bool adds = named("addmm") || named("baddbmm");
      const RooflineOperand* const left = argument(adds ? 1 : 0);
      const RooflineOperand* const made = result();
      if (left == nullptr || made == nullptr || left->shape.empty()) return 0;
      return 2.0 * elements(made->shape) * static_cast<double>(left->shape.back());
    }
    return 0;
  }

  // Whether products are of 16-bit numbers.
  [[nodiscard]] bool half() const {
    return std::any_of(operands_.begin(), operands_.end(),
                       [](const RooflineOperand& one) { return one.half && !one.output; });
  }
  [[nodiscard]] double bytes() const {
    double all = 0;
    for (const RooflineOperand& one : operands_) all += static_cast<double>(one.bytes);
    return all;
  }

 private:
  [[nodiscard]] bool named(std::string_view part) const {
    return name_.find(part) != std::string_view::npos;
  }
  [[nodiscard]] bool is(std::string_view name) const {
    return name_.substr(0, name_.find('.')) == name;
  }
  [[nodiscard]] const RooflineOperand* argument(std::uint16_t position) const {
    for (const RooflineOperand& one : operands_)
      if (!one.output && one.position == position) return &one;
    return nullptr;
  }
  [[nodiscard]] const RooflineOperand* result() const {
    for (const RooflineOperand& one : operands_)
      if (one.output) return &one;
    return nullptr;
  }

  std::string_view name_;
  std::span<const RooflineOperand> operands_;
};

}  // namespace

std::uint64_t ns_by_roofline(std::string_view name, std::span<const RooflineOperand> operands,
                             const Roofline& device) {
  const Called called(name, operands);
  const double flops_per_second = called.half() && device.half_flops_per_second > 0
                                      ? device.half_flops_per_second
                                      : device.flops_per_second;
  return static_cast<std::uint64_t>(
      std::max({1e9 * called.flops() / flops_per_second,
                1e9 * called.bytes() / device.bytes_per_second, device.least_ns}));
}

}  // namespace berth::graph
