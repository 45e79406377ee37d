#include "csrc/schedule/order/from_graph.h"
#include "csrc/schedule/retention/from_graph.h"
#include "csrc/schedule/retention/retention.h"
#include "tests/catch.h"
#include "tests/support/random_graph.h"

#include <algorithm>
#include <random>

namespace berth::schedule {
namespace {

// The same operators, all from some place in the recorded order on as the backward part.
void split(graph::Graph& graph, std::mt19937& random) {
  if (graph.operators.empty()) return;
  const std::size_t border = 1 + random() % graph.operators.size();
  for (std::size_t p = 0; p < graph.operators.size(); ++p) {
    const graph::OperatorId op =
        graph.order.empty() ? static_cast<graph::OperatorId>(p) : graph.order[p];
    graph.operators[op].phase = p < border ? graph::Phase::kForward : graph::Phase::kBackward;
  }
}

// A plan with rows that are as good as any.
Retention any_plan(const StageProblem& problem, std::mt19937& random) {
  Retention plan = keep_everything(problem);
  for (std::size_t row = 1; row < problem.stages.size(); ++row)
    for (StageValue value = 0; value < problem.values.size(); ++value)
      if (problem.values[value].keepable && random() % 4 == 0) plan.kept.flip(row, value);
  for (std::size_t t = 0; t < problem.stages.size(); ++t)
    if (!problem.stages[t].alternatives.empty())
      plan.alternatives[t] =
          static_cast<std::uint8_t>(random() % problem.stages[t].alternatives.size());
  return plan;
}

}  // namespace

TEST_CASE("What is planned in stages is what the referee replays", "[stage_graph]") {
  const auto seed = GENERATE(range(1U, 9U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  int checked = 0, exact = 0;
  for (int k = 0; k < 300; ++k) {
    graph::Graph graph = test::random_graph(random, 1 + random() % 14);
    if (random() % 3 != 0) split(graph, random);
    const StageGraph stages = stage_graph(graph, {}, kMaxBytes);
    const auto model = StageModel::make(stages.problem);
    const Retention plan =
        k % 4 == 0 ? keep_everything(stages.problem) : any_plan(stages.problem, random);
    const RetentionCost cost = evaluate(*model, plan);
    if (cost.cost >= StageProblem::kNever) continue;  // it would run what must not run again
    const graph::Schedule schedule = to_schedule(graph, stages, plan);
    const graph::Verdict verdict = graph::replay(graph, schedule);
    CAPTURE(k);
    REQUIRE(verdict.violation == "");
    REQUIRE(verdict.compute_ns == static_cast<std::uint64_t>(cost.cost));
    REQUIRE(verdict.peak <= static_cast<Bytes>(cost.peak));
    ++checked;
    exact += verdict.peak == static_cast<Bytes>(cost.peak) ? 1 : 0;
  }
  CAPTURE(checked, exact);
  REQUIRE(checked > 100);
  REQUIRE(exact > checked * 7 / 10);
}

}  // namespace berth::schedule
