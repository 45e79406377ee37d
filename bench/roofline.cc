#include "bench/roofline.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace berth::bench {
namespace {

using Shape = std::vector<std::int64_t>;

struct Called {
  std::string_view name;
  std::uint64_t parent = 0;
  std::vector<trace::Operand> operands;
  bool calls_kernels = false;
};

double elements(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), 1.0, [](double all, std::int64_t one) {
    return all * static_cast<double>(one);
  });
}

class Model {
 public:
  Model(const Trace& trace, const Roofline& device) : trace_(trace), device_(device) {}

  // Whether it runs a kernel of its own: no view, no room made.
  [[nodiscard]] bool computes(const Called& op) const {
    if (op.name.starts_with("aten::empty") || op.name.starts_with("aten::resize") ||
        op.name.starts_with("aten::set_") || op.name == "aten::detach_")
      return false;
    std::set<trace::BlockId> taken;
    bool writes = false;
    for (const trace::Operand& one : op.operands) {
      if (!one.output) taken.insert(one.block);
      writes = writes || (!one.output && one.access != trace::Access::kRead);
    }
    return writes || std::ranges::any_of(op.operands, [&](const trace::Operand& one) {
             return one.output && one.block != 0 && !taken.contains(one.block);
           });
  }

  [[nodiscard]] std::uint64_t ns(const Called& op) const {
    double bytes = 0;
    for (const trace::Operand& one : op.operands) bytes += static_cast<double>(one.bytes);
    return static_cast<std::uint64_t>(
        std::max({1e9 * flops(op) / device_.flops_per_second,
                  1e9 * bytes / device_.bytes_per_second, device_.least_ns}));
  }

 private:
  // Of the argument at a position, or of the first result.
  [[nodiscard]] const Shape* argument(const Called& op, std::uint16_t position) const {
    for (const trace::Operand& one : op.operands)
      if (!one.output && one.position == position) return &trace_.shapes[one.shape];
    return nullptr;
  }
  [[nodiscard]] const Shape* result(const Called& op) const {
    for (const trace::Operand& one : op.operands)
      if (one.output) return &trace_.shapes[one.shape];
    return nullptr;
  }

  [[nodiscard]] double flops(const Called& op) const {
    const auto named = [&](std::string_view part) {
      return op.name.find(part) != std::string_view::npos;
    };
    const bool backward = named("_backward");
    if (named("conv")) {
      const Shape* const weight = argument(op, backward ? 2 : 1);
      const Shape* const made = backward ? argument(op, 0) : result(op);
      if (weight == nullptr || made == nullptr || weight->empty() || weight->front() == 0) return 0;
      // Backward: one of the input and one of the weight.
      return (backward ? 4.0 : 2.0) * elements(*made) * elements(*weight) /
             static_cast<double>(weight->front());
    }
    if (named("dot_product") || named("efficient_attention") || named("flash_attention")) {
      const Shape* const query = argument(op, backward ? 1 : 0);
      const Shape* const key = argument(op, backward ? 2 : 1);
      if (query == nullptr || key == nullptr || key->size() < 2) return 0;
      // Two products forward; five backward, which makes one of them again.
      return (backward ? 10.0 : 4.0) * elements(*query) *
             static_cast<double>((*key)[key->size() - 2]);
    }
    if (named("mm") || op.name == "aten::linear" || op.name == "aten::matmul") {
      const bool adds = named("addmm") || named("baddbmm");
      const Shape* const left = argument(op, adds ? 1 : 0);
      const Shape* const made = result(op);
      if (left == nullptr || made == nullptr || left->empty()) return 0;
      return 2.0 * elements(*made) * static_cast<double>(left->back());
    }
    return 0;
  }

  const Trace& trace_;
  const Roofline& device_;
};

}  // namespace

void time_by_roofline(Trace& trace, const Roofline& device) {
  std::unordered_map<std::uint64_t, Called> called;
  std::map<trace::ThreadId, std::vector<std::uint64_t>> open;  // by thread, outermost first
  std::vector<std::uint64_t> order;
  for (const trace::Entry& entry : trace.entries) {
    if (const auto* begin = std::get_if<trace::OperatorBegin>(&entry.event)) {
      std::vector<std::uint64_t>& stack = open[entry.thread];
      called[begin->op] = {trace.name(begin->name), stack.empty() ? 0 : stack.back(), {}, false};
      stack.push_back(begin->op);
      order.push_back(begin->op);
    } else if (const auto* end = std::get_if<trace::OperatorEnd>(&entry.event)) {
      std::vector<std::uint64_t>& stack = open[entry.thread];
      const auto found = std::ranges::find(stack, end->op);
      stack.erase(found, stack.end());
    } else if (const auto* operand = std::get_if<trace::Operand>(&entry.event)) {
      const auto found = called.find(operand->op);
      if (found != called.end()) found->second.operands.push_back(*operand);
    }
  }
  const Model model(trace, device);
  trace::Tick tick = trace.entries.empty() ? 0 : trace.entries.back().tick;
  // Who is called begins behind who calls it.
  for (std::size_t k = order.size(); k-- > 0;) {
    const Called& op = called[order[k]];
    const bool kernel = !op.calls_kernels && model.computes(op);
    if (const auto parent = called.find(op.parent); parent != called.end())
      parent->second.calls_kernels |= kernel || op.calls_kernels;
    if (kernel)
      trace.entries.push_back({++tick, 0, 0, trace::DeviceTime{order[k], 0, 0, model.ns(op)}});
  }
}

}  // namespace berth::bench
