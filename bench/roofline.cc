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

struct Called {
  std::string_view name;
  std::uint64_t parent = 0;
  std::vector<trace::Operand> operands;
  bool calls_kernels = false;
};

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
    std::vector<graph::RooflineOperand> operands;
    for (const trace::Operand& one : op.operands)
      operands.push_back({.shape = trace_.shapes[one.shape],
                          .bytes = one.bytes,
                          .output = one.output,
                          .position = one.position,
                          .half = is_half(one.element_type)});
    return graph::ns_by_roofline(op.name, operands, device_);
  }

 private:
  // c10::ScalarType's Half and BFloat16.
  static bool is_half(int element_type) { return element_type == 5 || element_type == 15; }

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
