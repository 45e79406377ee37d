#include "csrc/schedule/order/from_graph.h"
#include "csrc/schedule/recomputation/from_graph.h"
#include "csrc/schedule/recomputation/recomputation.h"
#include "tests/catch.h"
#include "tests/schedule/two_parts.h"
#include "tests/support/random_graph.h"

#include <algorithm>
#include <random>

namespace berth::schedule {
TEST_CASE("What is planned in stages is what the referee replays", "[stage_graph]") {
  const auto seed = GENERATE(range(1U, 9U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  int checked = 0, exact = 0;
  for (int k = 0; k < 300; ++k) {
    graph::Graph graph = test::random_graph(random, 1 + random() % 14);
    if (random() % 3 != 0) test::split(graph, random);
    const StageGraph stages = stage_graph(graph, {}, kMaxBytes);
    const auto model = StageModel::make(stages.problem);
    const Recomputation plan =
        k % 4 == 0 ? keep_everything(stages.problem) : test::any_plan(stages.problem, random);
    const RecomputationCost cost = evaluate(*model, plan);
    REQUIRE((k % 4 != 0 || cost.cost < StageProblem::kNever));
    if (cost.cost >= StageProblem::kNever) continue;  // it would run what must not run again
    const graph::Schedule schedule = to_schedule(graph, stages, plan);
    const graph::Verdict verdict = graph::replay(graph, schedule);
    CAPTURE(k);
    REQUIRE(verdict.violation == "");
    REQUIRE(verdict.compute_ns == static_cast<std::uint64_t>(cost.cost));
    REQUIRE(verdict.peak <= static_cast<Bytes>(cost.peak));
    REQUIRE((k % 4 != 0 || verdict.recomputed == 0));
    ++checked;
    exact += verdict.peak == static_cast<Bytes>(cost.peak) ? 1 : 0;
  }
  CAPTURE(checked, exact);
  REQUIRE(checked > 100);
  REQUIRE(exact > checked * 7 / 10);
}

}  // namespace berth::schedule
