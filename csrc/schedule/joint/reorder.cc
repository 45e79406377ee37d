#include "csrc/schedule/joint/reorder.h"

#include "csrc/graph/hash.h"
#include "csrc/schedule/joint/unrolled.h"
#include "csrc/schedule/order/from_graph.h"

#include <algorithm>
#include <utility>

namespace berth::schedule {
namespace {

using graph::OperatorId;

// Runs after an operator's first, in the order of the graph, the dearest first.
std::vector<OperatorId> recomputed(const Unrolled& unrolled) {
  std::vector<OperatorId> again;
  std::vector<bool> ran(unrolled.runs.size(), false);  // by operator: there are no more of them
  for (const OperatorId run : unrolled.graph.order) {
    if (ran[unrolled.runs[run].op]) again.push_back(run);
    ran[unrolled.runs[run].op] = true;
  }
  const auto ns_of = [&](OperatorId run) {
    return unrolled.graph.operators[run].alternatives.front().ns;
  };
  std::stable_sort(again.begin(), again.end(),
                   [&](OperatorId a, OperatorId b) { return ns_of(a) > ns_of(b); });
  return again;
}

}  // namespace

Reordered reorder(const graph::Graph& graph, const graph::Schedule& schedule, Bytes budget,
                  OrderOptions how, const std::function<bool()>& stop) {
  Unrolled unrolled = unroll(graph, schedule);
  how.given = unrolled.graph.order;
  unrolled.graph.order = plan_order(order_problem(unrolled.graph), how).order;
  std::vector<OperatorId> again = recomputed(unrolled);
  for (auto run = again.begin(); run != again.end() && !stop(); ++run) {
    auto less = without(unrolled, *run);
    if (!less || peak_of(order_problem(less->graph), less->graph.order) > budget) continue;
    unrolled = std::move(*less);
    for (auto later = run + 1; later != again.end(); ++later) *later -= *later > *run ? 1 : 0;
  }
  return {rolled_up(unrolled, graph::schedule_of_order(unrolled.graph, unrolled.graph.order),
                    graph::hash_of(graph)),
          first_runs(unrolled, unrolled.graph.order)};
}

}  // namespace berth::schedule
