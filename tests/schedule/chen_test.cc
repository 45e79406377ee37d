#include "csrc/schedule/recomputation/chen.h"

#include "csrc/papers/published.h"
#include "csrc/schedule/recomputation/recomputation.h"
#include "tests/catch.h"
#include "tests/schedule/few_stages.h"
#include "tests/schedule/published.h"

#include <algorithm>
#include <limits>
#include <random>

using namespace berth;
using namespace berth::schedule;
using berth::test::fetched_graphs;

namespace {

// n operators of one byte and one unit of time, each the input of the next; backward, from the last
// one on, each wants its result.
StageProblem chain(StageNode n) {
  StageProblem problem;
  for (StageNode k = 0; k < n; ++k) {
    StageProblem::NodeOf node;
    if (k > 0) node.reads = {k - 1};
    node.makes = {k};
    node.first = {{1, 0}};
    problem.nodes.push_back(node);
    problem.values.push_back({1, k});
  }
  problem.stages.push_back({0, 0, {n - 1}, {}});
  for (StageNode k = n; k-- > 0;) problem.stages.push_back({0, 0, {}, {{{k}, {{1, 0}}}}});
  return problem;
}

RecomputationResult plan(const StageProblem& problem, const char* engine,
                         std::uint64_t moves = 2000) {
  RecomputationOptions options;
  options.engine = engine;
  options.iteration_budget = moves;
  options.time_limit_seconds = std::numeric_limits<double>::infinity();
  return plan_recomputation(problem, options);
}

}  // namespace

TEST_CASE("A chain fits in twice the root of its length and runs once more",
          "[schedule][recomputation][chen]") {
  StageProblem problem = chain(100);
  problem.budget = 21;
  const RecomputationResult found = plan(problem, "chen");
  REQUIRE(found.plan);
  CHECK(found.engine == "chen");
  CHECK(found.peak <= 21);
  CHECK(found.base_cost == 200);
  CHECK(found.cost > 200);
  CHECK(found.cost <= 300);
}

TEST_CASE("A chain split again and again needs less than twice the root",
          "[schedule][recomputation][chen]") {
  StageProblem problem = chain(100);
  problem.budget = 14;
  const RecomputationResult found = plan(problem, "chen");
  REQUIRE(found.plan);
  CHECK(found.peak <= 14);
  CHECK(found.cost > 300);  // something runs a third time
  CHECK(found.cost <= 500);
}

TEST_CASE("A read that passes over all of a chain leaves no place to split it",
          "[schedule][recomputation][chen]") {
  StageProblem problem = chain(100);
  problem.nodes.back().reads = {0, 98};
  std::size_t plans = 0, most = 0;
  const auto model = StageModel::make(problem);
  chen_plans(problem, 20, [&](const Recomputation& one) {
    ++plans;
    most = std::max(most, static_cast<std::size_t>(evaluate(*model, one).peak));
  });
  CHECK(plans > 0);
  CHECK(most >= 99);
  problem.budget = 60;
  CHECK(!plan(problem, "chen").plan);
}

TEST_CASE("Labels that are read at the end do not keep a chain from being split",
          "[schedule][recomputation][chen]") {
  StageProblem problem = chain(100);
  for (StageProblem::ValueOf& value : problem.values) value.bytes = 1000;
  problem.values[0].bytes = 10;
  problem.nodes.back().reads = {0, 98};
  problem.budget = 21'000;
  const RecomputationResult found = plan(problem, "chen");
  REQUIRE(found.plan);
  CHECK(found.cost <= 300);
}

TEST_CASE("With room for everything nothing runs again", "[schedule][recomputation][chen]") {
  StageProblem problem = chain(30);
  problem.budget = 31;
  const RecomputationResult found = plan(problem, "chen");
  REQUIRE(found.plan);
  CHECK(found.cost == found.base_cost);
  CHECK(found.proven_optimal);
}

TEST_CASE("The search is never worse than Chen's plans", "[schedule][recomputation][chen]") {
  const unsigned seed = GENERATE(range(1U, 41U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const StageRules rules : {StageRules::kExact, StageRules::kCheckmate, StageRules::kMonet}) {
    CAPTURE(static_cast<int>(rules));
    StageProblem problem = test::few_stages(random, rules);
    const auto model = StageModel::make(problem);
    problem.budget = evaluate(*model, keep_everything(problem)).peak * 8 / 10;
    const RecomputationResult chen = plan(problem, "chen"), best = plan(problem, "auto", 500);
    if (!chen.plan) continue;
    REQUIRE(best.plan);
    CHECK(best.cost <= chen.cost);
    CHECK(chen.cost_bound <= best.cost);
  }
}

TEST_CASE("Chen's plans of published graphs cost more than the published ones",
          "[schedule][recomputation][chen][acceptance]") {
  const auto folder = fetched_graphs("monet");
  if (!folder) return;
  const struct {
    const char* file;
    double gb;
    std::int64_t least, most;
  } rows[] = {
      {"resnet50_184_inplace_normal.json", 6, 112'366, 123'264},
      {"resnet50_184_inplace_normal.json", 9, 108'642, 119'682},
      {"un_11_inplace_normal.json", 10, 190'944, 239'098},
      {"vgg16_176_inplace_conv_multiway_newnode.json", 10, 132'400, 155'408},
  };
  for (const auto& [file, gb, least, most] : rows) {
    CAPTURE(file, gb);
    bool any = false;
    for (PublishedGraph& graph : read_published((*folder / file).string())) {
      if (std::none_of(graph.plans.begin(), graph.plans.end(),
                       [gb = gb](const PublishedPlan& one) { return one.budget_gb == gb; }))
        continue;
      any = true;
      graph.problem.budget = published_budget(gb);
      const RecomputationResult found = plan(graph.problem, "chen");
      REQUIRE(found.plan);
      CHECK(found.cost >= least);
      CHECK(found.cost <= most);
    }
    CHECK(any);
  }
}
