#include "csrc/schedule/order/greedy.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace berth::schedule {
namespace {

// Runs ready nodes one by one, the one of least key first, of equal ones the least number.
class Runner {
 public:
  explicit Runner(const OrderProblem& problem)
      : problem_(problem), missing_(problem.nodes.size()), readers_left_(problem.values.size()) {
    for (Node n = 0; n < problem.nodes.size(); ++n) {
      missing_[n] = problem.nodes[n].before.size();
      if (missing_[n] == 0) ready_.push_back(n);
    }
    for (Value v = 0; v < problem.values.size(); ++v)
      readers_left_[v] = problem.values[v].readers.size();
  }

  // Bytes that stay and that go when the node runs now.
  [[nodiscard]] std::int64_t growth(Node n) const {
    std::int64_t bytes = 0;
    for (const Value v : problem_.nodes[n].makes)
      if (readers_left_[v] != 0) bytes += static_cast<std::int64_t>(problem_.values[v].bytes);
    for (const Value v : problem_.nodes[n].reads)
      if (readers_left_[v] == 1) bytes -= static_cast<std::int64_t>(problem_.values[v].bytes);
    return bytes;
  }
  // When it became ready, latest first.
  [[nodiscard]] std::int64_t age(Node n) const { return since_[n]; }

  template <class Key>
  Order run(const Key& key) {
    since_.assign(problem_.nodes.size(), 0);
    Order order;
    order.reserve(problem_.nodes.size());
    while (!ready_.empty()) {
      auto best = ready_.begin();
      auto least = key(*best);
      for (auto it = best + 1; it != ready_.end(); ++it) {
        const auto value = key(*it);
        if (value < least || (value == least && *it < *best)) {
          best = it;
          least = value;
        }
      }
      const Node node = *best;
      *best = ready_.back();
      ready_.pop_back();
      order.push_back(node);
      for (const Value v : problem_.nodes[node].reads) --readers_left_[v];
      for (const Node next : problem_.nodes[node].after) {
        if (--missing_[next] != 0) continue;
        since_[next] = static_cast<std::int64_t>(order.size());
        ready_.push_back(next);
      }
    }
    return order;
  }

 private:
  const OrderProblem& problem_;
  std::vector<std::size_t> missing_, readers_left_;
  std::vector<std::int64_t> since_;
  std::vector<Node> ready_;
};

// The same problem from its end: what is read last is made first.
OrderProblem reversed(const OrderProblem& problem) {
  OrderProblem back;
  back.nodes.resize(problem.nodes.size());
  for (Node n = 0; n < problem.nodes.size(); ++n) {
    back.nodes[n].workspace = problem.nodes[n].workspace;
    for (const Node after : problem.nodes[n].after) back.control.emplace_back(after, n);
  }
  // Backwards a value is alive from its last reader to its maker: it is made by each of them a bit.
  for (const OrderProblem::ValueOf& value : problem.values) {
    if (value.maker == kNoNode || value.readers.empty()) continue;
    back.values.push_back({value.bytes, value.readers.back(), {value.maker}});
  }
  back.derive();
  return back;
}

using Pair = std::pair<std::int64_t, std::int64_t>;

}  // namespace

std::vector<NamedOrder> constructive_orders(const OrderProblem& problem) {
  std::vector<NamedOrder> orders;
  orders.push_back({"by number", problem.first_order()});
  {
    Runner runner(problem);
    orders.push_back({"depth first", runner.run([&](Node n) { return -runner.age(n); })});
  }
  {  // Lin et al.: the least that is alive while it runs, then what it leaves
    Runner runner(problem);
    orders.push_back({"least peak first", runner.run([&](Node n) {
                        return Pair{static_cast<std::int64_t>(problem.nodes[n].made), runner.growth(n)};
                      })});
  }
  {
    Runner runner(problem);
    orders.push_back({"least growth first", runner.run([&](Node n) {
                        return Pair{runner.growth(n), -runner.age(n)};
                      })});
  }
  {  // what frees comes at once, the others in depth
    Runner runner(problem);
    orders.push_back({"eager", runner.run([&](Node n) {
                        const std::int64_t growth = runner.growth(n);
                        return Pair{growth <= 0 ? 0 : 1, -runner.age(n)};
                      })});
  }
  {
    const OrderProblem back = reversed(problem);
    Runner runner(back);
    Order order = runner.run([&](Node n) { return Pair{runner.growth(n), -runner.age(n)}; });
    std::reverse(order.begin(), order.end());
    orders.push_back({"backwards", std::move(order)});
  }
  return orders;
}

}  // namespace berth::schedule
