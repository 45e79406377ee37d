#pragma once

#include "csrc/schedule/order/problem.h"

#include <cstdint>
#include <vector>

namespace berth::schedule {

// Nodes that were run, one by one, and what that leaves: which are ready, what is alive. Not
// thread-safe; the problem outlives it.
class Execution {
 public:
  explicit Execution(const OrderProblem& problem);

  [[nodiscard]] const Order& order() const noexcept { return order_; }
  [[nodiscard]] bool complete() const noexcept { return order_.size() == problem_.nodes.size(); }
  // Nodes all of whose predecessors have run, in no order.
  [[nodiscard]] const std::vector<Node>& ready() const noexcept { return ready_; }
  [[nodiscard]] Bytes live() const noexcept { return live_; }  // constant included
  // Bytes that are alive while the node runs now.
  [[nodiscard]] Bytes live_at(Node node) const { return live_ + problem_.nodes[node].made; }
  // What it makes that stays less what goes, when the node runs now. O(its reads and results).
  [[nodiscard]] std::int64_t growth(Node node) const;

  // Runs a ready node. O(ready nodes and its edges).
  void run(Node node);
  // Takes the last one back.
  void undo();

 private:
  const OrderProblem& problem_;
  std::vector<std::size_t> missing_, readers_left_;
  std::vector<Node> ready_;
  Order order_;
  Bytes live_;
};

}  // namespace berth::schedule
