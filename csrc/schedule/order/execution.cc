#include "csrc/schedule/order/execution.h"

#include <algorithm>

namespace berth::schedule {

Execution::Execution(const OrderProblem& problem)
    : problem_(problem),
      missing_(problem.nodes.size()),
      readers_left_(problem.values.size()),
      live_(problem.constant) {
  order_.reserve(problem.nodes.size());
  for (Node n = 0; n < problem.nodes.size(); ++n) {
    missing_[n] = problem.nodes[n].before.size();
    if (missing_[n] == 0) ready_.push_back(n);
  }
  for (Value v = 0; v < problem.values.size(); ++v) {
    const OrderProblem::ValueOf& value = problem.values[v];
    readers_left_[v] = value.readers.size();
    if (value.maker == kNoNode && !value.readers.empty()) live_ += value.bytes;
  }
}

std::int64_t Execution::growth(Node node) const {
  std::int64_t bytes = 0;
  for (const Value v : problem_.nodes[node].makes)
    if (readers_left_[v] != 0) bytes += static_cast<std::int64_t>(problem_.values[v].bytes);
  for (const Value v : problem_.nodes[node].reads)
    if (readers_left_[v] == 1) bytes -= static_cast<std::int64_t>(problem_.values[v].bytes);
  return bytes;
}

void Execution::run(Node node) {
  order_.push_back(node);
  live_ = static_cast<Bytes>(static_cast<std::int64_t>(live_) + growth(node));
  for (const Value v : problem_.nodes[node].reads) --readers_left_[v];
  ready_.erase(std::find(ready_.begin(), ready_.end(), node));
  for (const Node after : problem_.nodes[node].after)
    if (--missing_[after] == 0) ready_.push_back(after);
}

void Execution::undo() {
  const Node node = order_.back();
  order_.pop_back();
  for (const Node after : problem_.nodes[node].after)
    if (missing_[after]++ == 0) ready_.erase(std::find(ready_.begin(), ready_.end(), after));
  for (const Value v : problem_.nodes[node].reads) ++readers_left_[v];
  live_ = static_cast<Bytes>(static_cast<std::int64_t>(live_) - growth(node));
  ready_.push_back(node);
}

}  // namespace berth::schedule
