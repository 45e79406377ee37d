#include "csrc/schedule/joint/unrolled.h"

#include "csrc/graph/hash.h"
#include "csrc/schedule/order/from_graph.h"
#include "csrc/schedule/order/greedy.h"
#include "csrc/schedule/recomputation/from_schedule.h"
#include "csrc/schedule/recomputation/recomputation.h"
#include "tests/catch.h"
#include "tests/support/random_graph.h"
#include "tests/support/random_schedule.h"

#include <berth/referee.h>

#include <algorithm>
#include <random>

namespace berth::schedule {

TEST_CASE("In whatever order the runs of a schedule come, the referee allows them",
          "[joint][unrolled]") {
  const auto seed = GENERATE(range(1U, 7U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  int moved = 0, smaller = 0;
  for (int k = 0; k < 60; ++k) {
    CAPTURE(k);
    const graph::Graph graph = test::random_graph(random, 1 + random() % 10);
    const auto schedule = test::RandomSchedule(random, graph, k % 2 == 0).make(false);
    if (!schedule) continue;
    const graph::Verdict before = graph::replay(graph, *schedule);
    REQUIRE(before.violation == "");
    const Unrolled unrolled = unroll(graph, *schedule);
    REQUIRE(graph::violation(unrolled.graph) == "");
    const auto roll_up = [&](const Order& order) {
      return rolled_up(unrolled, graph::schedule_of_order(unrolled.graph, order),
                       graph::hash_of(graph));
    };
    const graph::Verdict same = graph::replay(graph, roll_up(unrolled.graph.order));
    REQUIRE(same.violation == "");
    REQUIRE(same.compute_ns == before.compute_ns);
    REQUIRE(same.recomputed == before.recomputed);
    const OrderProblem problem = order_problem(unrolled.graph);
    for (const NamedOrder& named : constructive_orders(problem, [] { return false; })) {
      const graph::Verdict verdict = graph::replay(graph, roll_up(named.order));
      REQUIRE(verdict.violation == "");
      REQUIRE(verdict.compute_ns == before.compute_ns);
      REQUIRE(verdict.peak == peak_of(problem, named.order));
      moved += named.order != unrolled.graph.order ? 1 : 0;
      smaller += verdict.peak < same.peak ? 1 : 0;
    }
  }
  REQUIRE(moved > 50);
  REQUIRE(smaller > 10);
}

TEST_CASE("A plan of what to keep is found again in its schedule", "[joint][recomputation]") {
  const auto seed = GENERATE(range(1U, 7U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  int recomputed = 0;
  for (int k = 0; k < 20; ++k) {
    CAPTURE(k);
    graph::Graph graph = test::random_graph(random, 2 + random() % 12);
    for (std::size_t p = graph.operators.size() / 2; p < graph.operators.size(); ++p)
      graph.operators[graph.order.empty() ? p : graph.order[p]].phase = graph::Phase::kBackward;
    const StageGraph all = stage_graph(graph, {}, Bytes{1} << 30);
    RecomputationOptions options;
    options.iteration_budget = 300;
    options.time_limit_seconds = 60;
    const RecomputationResult found = plan_recomputation(all.problem, options);
    REQUIRE(found.plan);
    for (Bytes more = 0; more < 8; ++more) {
      CAPTURE(more);
      const StageGraph stages =
          stage_graph(graph, {}, static_cast<Bytes>(found.least_budget) + more);
      const RecomputationResult tight = plan_recomputation(stages.problem, options);
      if (!tight.plan) continue;
      const graph::Schedule schedule = to_schedule(graph, stages, *tight.plan);
      const graph::Verdict verdict = graph::replay(graph, schedule);
      REQUIRE(verdict.violation == "");
      recomputed += verdict.recomputed != 0 ? 1 : 0;
      const Recomputation again = recomputation_of(graph, stages, schedule);
      const auto model = StageModel::make(stages.problem);
      const RecomputationCost cost = evaluate(*model, again);
      REQUIRE(cost.cost <= tight.cost);
      REQUIRE(cost.peak <= tight.peak);
    }
  }
  REQUIRE(recomputed > 0);
}

TEST_CASE("What is run again behind the last stage keeps nothing", "[unrolled]") {
  graph::Graph graph;
  graph.storages.resize(2, {8, graph::StorageClass::kStep, trace::RoleKind::kUnknown});
  for (graph::StorageId made = 0; made < 2; ++made) {
    graph::Operator op;
    op.name = "op";
    op.phase = made == 0 ? graph::Phase::kForward : graph::Phase::kBackward;
    graph::Alternative& taken = op.alternatives.emplace_back();
    taken.ns = 1;
    if (made == 1) taken.reads = {{{0, 1}, 0, 8}};
    taken.writes = {{made, 1}};
    graph.operators.push_back(op);
  }
  graph::Schedule schedule = graph::schedule_of_order(graph, std::vector<graph::OperatorId>{0, 1});
  graph::ScheduleStep last;
  for (const graph::ScheduleStep& step : schedule.steps)
    if (step.kind == graph::ScheduleStep::Kind::kRun) last = step;
  schedule.steps.push_back(last);
  const StageGraph stages = stage_graph(graph, {}, 64);
  RecomputationOptions options;
  options.given = recomputation_of(graph, stages, schedule);
  options.iteration_budget = 10;
  REQUIRE(plan_recomputation(stages.problem, options).plan);
}

}  // namespace berth::schedule
