#include "csrc/schedule/order/greedy.h"

#include "csrc/schedule/order/execution.h"

#include <algorithm>
#include <cstdint>

namespace berth::schedule {
namespace {

// Runs ready nodes one by one, the one of least key first, of equal ones the least number.
class Runner {
 public:
  explicit Runner(const OrderProblem& problem)
      : problem_(problem), execution_(problem), since_(problem.nodes.size(), 0) {}

  [[nodiscard]] std::int64_t growth(Node n) const { return execution_.growth(n); }
  // When it became ready.
  [[nodiscard]] std::int64_t since(Node n) const { return since_[n]; }

  // Empty where it was stopped.
  template <class Key>
  Order run(const Key& key, const std::function<bool()>& stop) {
    while (!execution_.complete()) {
      if (execution_.order().size() % 256 == 0 && stop()) return {};
      const std::vector<Node>& ready = execution_.ready();
      Node best = ready.front();
      auto least = key(best);
      for (const Node n : ready) {
        const auto value = key(n);
        if (value < least || (value == least && n < best)) {
          best = n;
          least = value;
        }
      }
      execution_.run(best);
      for (const Node next : problem_.nodes[best].after)
        since_[next] = static_cast<std::int64_t>(execution_.order().size());
    }
    return execution_.order();
  }

 private:
  const OrderProblem& problem_;
  Execution execution_;
  std::vector<std::int64_t> since_;
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

std::vector<NamedOrder> constructive_orders(const OrderProblem& problem,
                                            const std::function<bool()>& stop) {
  std::vector<NamedOrder> orders;
  orders.push_back({"by number", problem.first_order()});
  {
    Runner runner(problem);
    orders.push_back({"depth first", runner.run([&](Node n) { return -runner.since(n); }, stop)});
  }
  {  // Lin et al.: the least that is alive while it runs, then what it leaves
    Runner runner(problem);
    orders.push_back(
        {"least peak first",
         runner.run(
             [&](Node n) {
               return Pair{static_cast<std::int64_t>(problem.nodes[n].made), runner.growth(n)};
             },
             stop)});
  }
  {
    Runner runner(problem);
    orders.push_back({"least growth first", runner.run(
                                                [&](Node n) {
                                                  return Pair{runner.growth(n), -runner.since(n)};
                                                },
                                                stop)});
  }
  {  // what frees comes at once, the others in depth
    Runner runner(problem);
    orders.push_back({"eager", runner.run(
                                   [&](Node n) {
                                     const std::int64_t growth = runner.growth(n);
                                     return Pair{growth <= 0 ? 0 : 1, -runner.since(n)};
                                   },
                                   stop)});
  }
  {
    const OrderProblem back = reversed(problem);
    Runner runner(back);
    Order order = runner.run(
        [&](Node n) {
          return Pair{runner.growth(n), -runner.since(n)};
        },
        stop);
    std::reverse(order.begin(), order.end());
    orders.push_back({"backwards", std::move(order)});
  }
  std::erase_if(orders, [](const NamedOrder& named) { return named.order.empty(); });
  return orders;
}

}  // namespace berth::schedule
