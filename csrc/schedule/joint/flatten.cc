#include "csrc/schedule/joint/flatten.h"

#include "csrc/schedule/joint/unrolled.h"
#include "csrc/schedule/order/from_graph.h"
#include "csrc/schedule/order/search.h"

#include <algorithm>
#include <array>
#include <utility>

namespace berth::schedule {
namespace {

// Steps with more alive than such a share of the peak are made flatter.
constexpr std::array kTargets = {0.99, 0.98, 0.97, 0.96, 0.95};
constexpr int kMostMoves = 100;  // to each

}  // namespace

Addresses place_flattened(const graph::Graph& graph, graph::Schedule& schedule,
                          const AddressOptions& options) {
  AddressOptions how = options;
  how.time_limit_seconds /= 2;
  how.iteration_budget = (options.iteration_budget + 1) / 2;
  Addresses best = place_addresses(graph, schedule, how);
  const auto done = [&] {
    return best.arena_bytes <= std::max(best.live_peak, options.capacity.value_or(0)) ||
           (options.cancel != nullptr && *options.cancel);
  };
  const bool copies = std::ranges::any_of(schedule.steps, [](const graph::ScheduleStep& step) {
    return step.kind == graph::ScheduleStep::Kind::kOffload;
  });
  if (done() || copies) return best;
  how.time_limit_seconds /= kTargets.size();
  if (how.iteration_budget != 0) how.iteration_budget = how.iteration_budget / kTargets.size() + 1;
  const Unrolled unrolled = unroll(graph, schedule);
  const OrderProblem problem = order_problem(unrolled.graph);
  if (problem.nodes.size() > kMostOrdered) return best;
  MinCut cuts(problem);
  const Bytes peak = peak_of(problem, unrolled.graph.order);
  const graph::Schedule given = schedule;
  Order before = unrolled.graph.order;
  for (const double share : kTargets) {
    if (done()) break;
    WorkingOrder order(problem, unrolled.graph.order,
                       static_cast<Bytes>(share * static_cast<double>(peak)));
    for (int moves = 0; moves < kMostMoves && !(options.cancel && *options.cancel) &&
                        descend_once(cuts, order, {.moves = 1});
         ++moves) {
    }
    if (order.peak() > peak || order.order() == before) continue;
    before = order.order();
    graph::Schedule flatter =
        rolled_up(unrolled, graph::schedule_of_order(unrolled.graph, before), given.graph_hash);
    flatter.budget = given.budget;
    flatter.engine = given.engine;
    flatter.seed = given.seed;
    flatter.peak_bound = given.peak_bound;
    flatter.ns_bound = given.ns_bound;
    const Addresses found = place_addresses(graph, flatter, how);
    if (found.arena_bytes >= best.arena_bytes) continue;
    const graph::Verdict verdict = graph::replay(graph, flatter, options.rates);
    flatter.peak = verdict.peak;
    flatter.ns = verdict.ns;
    best = found;
    schedule = std::move(flatter);
  }
  return best;
}

}  // namespace berth::schedule
