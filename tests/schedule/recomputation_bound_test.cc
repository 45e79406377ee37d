#include "csrc/papers/published.h"
#include "csrc/schedule/recomputation/bound.h"
#include "csrc/schedule/recomputation/model.h"
#include "csrc/schedule/recomputation/recomputation.h"
#include "tests/catch.h"
#include "tests/schedule/few_stages.h"
#include "tests/schedule/published.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

using namespace berth;
using namespace berth::schedule;
using berth::test::fetched_graphs;

namespace {

// The least cost of all plans, or kNever: every choice of alternatives, every set of kept values.
std::int64_t least_cost(const StageProblem& problem) {
  const auto model = StageModel::make(problem);
  const std::size_t values = problem.values.size(), stages = problem.stages.size();
  const std::size_t rows = std::size_t{1} << values;
  constexpr std::int64_t kNever = StageProblem::kNever;
  // A stage depends on the rows at its two ends alone, so rows can be gone through one by one.
  std::vector<std::int64_t> least(rows, kNever), next;
  least[0] = 0;
  BitTable table(2, values), runs(1, problem.nodes.size());
  const auto fill = [&](std::size_t row, std::size_t set) {
    std::int64_t bytes = 0;
    table.row(row)[0] = set;
    for (std::size_t v = 0; v < values; ++v)
      if ((set >> v & 1) != 0) bytes += problem.values[v].bytes;
    return bytes;
  };
  for (std::size_t t = 0; t < stages; ++t) {
    next.assign(rows, kNever);
    for (std::size_t from = 0; from < rows; ++from) {
      if (least[from] >= kNever) continue;
      const std::int64_t before = fill(0, from);
      for (std::size_t to = 0; to < (t + 1 == stages ? 1 : rows); ++to) {
        bool legal = true;
        for (std::size_t v = 0; v < values; ++v)
          legal = legal && ((to >> v & 1) == 0 || problem.values[v].keepable);
        if (!legal) continue;
        const std::int64_t after = fill(1, to);
        const std::size_t alternatives =
            std::max<std::size_t>(problem.stages[t].alternatives.size(), 1);
        for (std::uint32_t a = 0; a < alternatives; ++a) {
          const StageCost cost =
              model->evaluate(t, a, {table.row(0), table.row(1), before, after}, runs.row(0));
          if (cost.peak <= problem.budget) next[to] = std::min(next[to], least[from] + cost.cost);
        }
      }
    }
    least.swap(next);
  }
  return std::min(least[0], kNever);
}

}  // namespace

TEST_CASE("No plan costs less than the bound", "[schedule][recomputation][bound]") {
  const unsigned seed = GENERATE(range(1U, 401U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const StageRules rules : {StageRules::kExact, StageRules::kCheckmate, StageRules::kMonet}) {
    CAPTURE(static_cast<int>(rules));
    StageProblem problem = test::few_stages(random, rules);
    REQUIRE(problem.violation().empty());
    const auto model = StageModel::make(problem);
    const RecomputationCost free = evaluate(*model, keep_everything(problem));
    for (const std::int64_t percent : {100, 85, 70, 55, 40}) {
      CAPTURE(percent);
      problem.budget = free.peak * percent / 100;
      const std::int64_t least = least_cost(problem);
      RecomputationBound bound(problem);
      std::int64_t before = bound.cost();
      CHECK(before <= least);
      CHECK(!(bound.impossible() && least < StageProblem::kNever));
      for (int k = 0; k < 10 && !bound.impossible(); ++k) {
        bound.refine(10, 0);
        CHECK(bound.cost() >= before);
        CHECK(bound.cost() <= least);
        before = bound.cost();
      }
      CHECK(!(bound.impossible() && least < StageProblem::kNever));
    }
  }
}

TEST_CASE("A bound sees that two values cannot both be kept", "[schedule][recomputation][bound]") {
  // Two values of 10 bytes, each made for 7 and read once, in 16 bytes. Neither can be there while
  // the other is made, so both are made again. The prices know that not both can be kept.
  StageProblem problem;
  problem.values = {{10, 0}, {10, 1}};
  for (StageValue value = 0; value < 2; ++value) {
    StageProblem::NodeOf node;
    node.makes = {value};
    node.first = {{7, 0}};
    problem.nodes.push_back(node);
  }
  problem.stages = {
      {0, 0, {0, 1}, {}}, {0, 0, {}, {{{0}, {{1, 0}}}}}, {0, 0, {}, {{{1}, {{1, 0}}}}}};
  problem.budget = 16;
  RecomputationBound bound(problem);
  CHECK(bound.cost() == 16);
  bound.refine(300, 0);
  CHECK(bound.cost() >= 16 + 3);
  CHECK(bound.cost() <= least_cost(problem));
  CHECK(least_cost(problem) == 16 + 14);
}

TEST_CASE("A budget that one operator alone exceeds has no plan",
          "[schedule][recomputation][bound]") {
  StageProblem problem;
  problem.values = {{10, 0}};
  problem.nodes.resize(1);
  problem.nodes[0].makes = {0};
  problem.nodes[0].first = {{7, 5}};
  problem.stages = {{0, 0, {0}, {}}};
  problem.budget = 15;
  CHECK(!RecomputationBound(problem).impossible());
  problem.budget = 14;
  CHECK(RecomputationBound(problem).impossible());
  CHECK(RecomputationBound(problem).cost() == StageProblem::kNever);
}

TEST_CASE("A result that can neither be kept nor made again within the budget leaves no plan",
          "[schedule][recomputation][bound]") {
  StageProblem problem;
  problem.values = {{10, 0, false}};
  problem.nodes.resize(1);
  problem.nodes[0].makes = {0};
  problem.nodes[0].first = {{7, 0}};
  problem.nodes[0].only_once = true;
  problem.stages = {{0, 0, {0}, {}}, {0, 0, {}, {{{0}, {{1, 0}}}}}};
  CHECK(RecomputationBound(problem).impossible());
  CHECK(RecomputationBound(problem).cost() == StageProblem::kNever);
  CHECK(least_cost(problem) == StageProblem::kNever);
  const RecomputationResult found = plan_recomputation(problem);
  CHECK(!found.plan);
  CHECK(found.cost_bound == 0);
  CHECK(found.why_not.find("whatever is kept") != std::string::npos);
  problem.values[0].keepable = true;
  CHECK(RecomputationBound(problem).cost() == 8);
}

TEST_CASE("A bound depends on its rounds alone", "[schedule][recomputation][bound]") {
  std::mt19937 random(7);
  StageProblem problem = test::few_stages(random, StageRules::kExact);
  problem.budget = 40;
  RecomputationBound once(problem), twice(problem), stopped(problem);
  once.refine(60, 0);
  twice.refine(25, 0);
  twice.refine(35, 0);
  CHECK(once.cost() == twice.cost());
  const std::int64_t first = stopped.cost();
  stopped.refine(60, 0, [] { return true; });
  CHECK(stopped.cost() == first);
  CHECK(stopped.rounds() == 0);
}

TEST_CASE("Bounds of published graphs are below published plans",
          "[schedule][recomputation][bound][acceptance]") {
  const auto folder = fetched_graphs("monet");
  if (!folder) return;
  double gaps = 0;
  int plans = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    if (entry.path().extension() != ".json") continue;
    for (PublishedGraph& graph : read_published(entry.path().string()))
      for (const PublishedPlan& plan : graph.plans) {
        CAPTURE(entry.path().stem().string(), plan.budget_gb);
        graph.problem.budget = published_budget(plan.budget_gb);
        RecomputationBound bound(graph.problem);
        const std::int64_t first = bound.cost();
        bound.refine(200, 0);
        CHECK(bound.cost() >= first);
        CHECK(bound.cost() <= plan.cost);
        gaps += static_cast<double>(plan.cost) / static_cast<double>(bound.cost()) - 1;
        ++plans;
      }
  }
  REQUIRE(plans == 90);
  CHECK(gaps / plans < 0.031);
}
