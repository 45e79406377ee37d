#include "csrc/schedule/recomputation/cut_plans.h"

#include "csrc/schedule/recomputation/recomputation.h"
#include "tests/catch.h"

#include <algorithm>
#include <string>

namespace berth::schedule {
namespace {

// Blocks of a dear operator with a small result and a cheap one with a large result; a small mask
// is read by all. The backward part wants every result, last first.
StageProblem blocks(std::size_t count) {
  StageProblem problem;
  const auto add = [&](std::int64_t bytes, std::int64_t cost, std::vector<StageValue> reads) {
    const auto node = static_cast<StageNode>(problem.nodes.size());
    problem.values.push_back({bytes, node, true});
    StageProblem::NodeOf one;
    one.reads = std::move(reads);
    one.makes = {node};
    one.first = {{cost, 0, 0}};
    problem.nodes.push_back(one);
    return static_cast<StageValue>(node);
  };
  const StageValue mask = add(1, 5, {});
  StageValue last = mask;
  for (std::size_t k = 0; k < count; ++k) {
    const StageValue small =
        add(2, 100, last == mask ? std::vector{mask} : std::vector{mask, last});
    last = add(10, 3, {mask, small});
  }
  problem.stages.resize(1);
  for (StageNode n = 0; n < problem.nodes.size(); ++n) problem.stages[0].must_run.push_back(n);
  for (StageValue value = last + 1; value-- > 0;) {
    StageProblem::StageOf stage;
    stage.closing = 1;
    stage.alternatives = {{{value}, {{50, 0, 0}}}};
    problem.stages.push_back(stage);
  }
  return problem;
}

}  // namespace

TEST_CASE("A cut keeps what is dear for its bytes, in all blocks at once", "[recomputation][cut]") {
  StageProblem problem = blocks(30);
  problem.budget = 30 * 2 + 1 + 30;
  RecomputationOptions options;
  options.engine = "cut";
  options.time_limit_seconds = 60;
  const RecomputationResult cut = plan_recomputation(problem, options);
  REQUIRE(cut.plan);
  // All but the last three or so of the large ones are made again, none of the small ones.
  REQUIRE(cut.cost <= cut.base_cost + 30 * 3);
  options.engine = "chen";
  const RecomputationResult chen = plan_recomputation(problem, options);
  REQUIRE((!chen.plan || chen.cost > cut.cost));
  options.engine = "auto";
  options.iteration_budget = 1000;
  const RecomputationResult best = plan_recomputation(problem, options);
  REQUIRE(best.cost <= cut.cost);
}

TEST_CASE("A step without a backward part has no plan by cuts", "[recomputation][cut]") {
  StageProblem problem = blocks(2);
  problem.rules = StageRules::kCheckmate;
  int plans = 0;
  cut_plans(problem, 8, [&](const Recomputation&) { return ++plans > 0; });
  REQUIRE(plans == 0);
  problem.rules = StageRules::kExact;
  cut_plans(problem, 8, [&](const Recomputation&) { return ++plans > 1000; });
  REQUIRE(plans == 8);
}

}  // namespace berth::schedule
