#include "csrc/schedule/order/area.h"

#include <algorithm>
#include <utility>

namespace berth::schedule {

WorkingOrder::WorkingOrder(const OrderProblem& problem, Order order, Bytes target)
    : problem_(problem),
      order_(std::move(order)),
      position_(order_.size()),
      live_(live_bytes(problem, order_)),
      kept_(order_.size()),
      seen_(problem.values.size(), 0) {
  for (std::uint32_t k = 0; k < order_.size(); ++k) position_[order_[k]] = k;
  // What is alive after a step is what the next has without its own.
  for (std::uint32_t k = 0; k + 1 < order_.size(); ++k)
    kept_[k] = live_[k + 1] - problem_.nodes[order_[k + 1]].made;
  if (!order_.empty()) kept_.back() = problem_.constant;
  set_target(target);
}

void WorkingOrder::set_target(Bytes target) {
  target_ = target;
  area_ = 0;
  for (const Bytes live : live_) area_ += above(live);
}

Bytes WorkingOrder::peak() const noexcept {
  return live_.empty() ? problem_.constant : *std::max_element(live_.begin(), live_.end());
}

// By the order as it is.
std::uint32_t WorkingOrder::last_reader(Value value) const {
  std::uint32_t last = 0;
  for (const Node reader : problem_.values[value].readers) last = std::max(last, position_[reader]);
  return last;
}

double WorkingOrder::price(std::uint32_t first, std::span<const Node> nodes) {
  const auto size = static_cast<std::uint32_t>(nodes.size()), end = first + size;
  ++call_;
  new_live_.resize(size);
  new_kept_.assign(size, 0);  // bytes that go after each step of the window
  // From the right: a value's last reader in the window is its end, if none reads it beyond.
  for (std::uint32_t k = size; k-- > 0;) {
    for (const Value v : problem_.nodes[nodes[k]].reads) {
      if (seen_[v] == call_) continue;
      seen_[v] = call_;
      // mutant: order-last-reader
      if (last_reader(v) < end) new_kept_[k] += problem_.values[v].bytes;
    }
  }
  Bytes kept = first == 0 ? live_[0] - problem_.nodes[order_[0]].made : kept_[first - 1];
  double change = 0;
  for (std::uint32_t k = 0; k < size; ++k) {
    const OrderProblem::NodeOf& node = problem_.nodes[nodes[k]];
    new_live_[k] = kept + node.made;
    for (const Value v : node.makes)
      if (!problem_.values[v].readers.empty()) kept += problem_.values[v].bytes;
    kept -= new_kept_[k];
    new_kept_[k] = kept;
    change += above(new_live_[k]) - above(live_[first + k]);
  }
  new_area_ = change;
  return change;
}

void WorkingOrder::accept(std::uint32_t first, std::span<const Node> nodes) {
  for (std::uint32_t k = 0; k < nodes.size(); ++k) {
    order_[first + k] = nodes[k];
    position_[nodes[k]] = first + k;
    live_[first + k] = new_live_[k];
    kept_[first + k] = new_kept_[k];
  }
  area_ += new_area_;
}

}  // namespace berth::schedule
