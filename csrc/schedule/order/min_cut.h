#pragma once

#include "csrc/core/max_flow.h"
#include "csrc/schedule/order/bit_rows.h"
#include "csrc/schedule/order/problem.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace berth::schedule {

// What any order has alive while a node runs.
//
// When v runs, the executed nodes are closed under predecessors, hold all that v depends on, and
// neither v nor what depends on it. The least that is alive over all such sets is a minimum cut:
// of a network in which a value costs its bytes where its maker is executed and one of its readers
// is not. So it bounds every order from below, and the set that attains it says what to run before
// v.
//
// Reusable; not thread-safe. Memory O(n^2 / 8) for the ancestors.
class MinCut {
 public:
  explicit MinCut(const OrderProblem& problem);

  enum class Side : std::uint8_t { kLeast, kLargest };  // of the executed sets that attain it
  // Nodes whose position in `position` is below `first` are executed and those above `last` are
  // not, whatever the cut. Returns the bytes alive at v; executed() says by which set.
  [[nodiscard]] Bytes live(Node v, const std::vector<std::uint32_t>& position, std::uint32_t first,
                           std::uint32_t last, Side side = Side::kLeast);
  // Without such limits.
  [[nodiscard]] Bytes live(Node v);
  // Of the last call of live(): whether the node runs before v.
  [[nodiscard]] bool executed(Node node) const { return executed_[node]; }

  [[nodiscard]] const BitRows& ancestors() const noexcept { return ancestors_; }

 private:
  enum class Fate : std::uint8_t { kExecuted, kOpen, kLater };
  void find_side(Side side);

  const OrderProblem& problem_;
  BitRows ancestors_;
  std::vector<Fate> fates_;
  std::vector<bool> executed_;
  MaxFlow flow_;                         // of open nodes and values
  std::vector<MaxFlow::Vertex> vertex_;  // of each node
};

// The largest live() of a node. Nodes are looked at in falling order of what they have alive in
// `order`, which no cut is above: so the rest is left out as soon as that is not above the best. A
// bound all the same where `most_flows` cuts are not enough for that, or `stop` ends it; 1 to 95
// are, for an order that is good.
struct OrderBound {
  Bytes bytes = 0;
  std::uint32_t flows = 0;
};
[[nodiscard]] OrderBound min_cut_bound(
    MinCut& cuts, const OrderProblem& problem, std::span<const Node> order,
    std::uint32_t most_flows = std::numeric_limits<std::uint32_t>::max(),
    const std::function<bool()>& stop = [] { return false; });

}  // namespace berth::schedule
