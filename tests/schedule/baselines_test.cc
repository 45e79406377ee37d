// Plans by the rules of others, for recorded steps: legal, and with the marks that tell them apart.
#include "csrc/papers/monet_form.h"
#include "csrc/schedule/recomputation/knapsack.h"
#include "csrc/schedule/recomputation/made_once.h"
#include "csrc/schedule/recomputation/recomputation.h"
#include "csrc/schedule/recomputation/saved_sets.h"
#include "tests/catch.h"
#include "tests/schedule/two_parts.h"
#include "tests/support/random_graph.h"

#include <berth/schedule.h>

#include <algorithm>
#include <random>
#include <set>

namespace berth::schedule {
namespace {

struct Priced {
  std::int64_t cost = 0, peak = 0;
};

std::vector<Priced> knapsack(const graph::Graph& graph, std::size_t grid) {
  const StageGraph stages = stage_graph(graph, {}, kMaxBytes);
  const auto model = StageModel::make(stages.problem);
  std::vector<Priced> found;
  knapsack_plans(graph, stages, grid, [&](const Recomputation& plan) {
    const RecomputationCost cost = evaluate(*model, plan);
    found.push_back({cost.cost, cost.peak});
  });
  return found;
}

}  // namespace

TEST_CASE("What is wanted by a product is saved first, what fuses is made again before any product",
          "[schedule][baselines][knapsack]") {
  // Forward 4 x 100 + 4 x 1, backward 8.
  std::vector<test::Link> links;
  for (int k = 0; k < 4; ++k) {
    links.push_back({"aten::mm", 100, 10});
    links.push_back({"aten::relu", 1, 10});
  }
  const std::vector<Priced> plans = knapsack(test::chain(links, "aten::mm"), 100);
  REQUIRE(plans.size() >= 3);
  CHECK(plans[0].cost == 412);  // nothing again
  CHECK(plans[1].cost == 416);  // each relu again, no product
  CHECK(plans[1].peak < plans[0].peak);
  CHECK(plans.back().cost > 416);  // products too, for the smallest share
  CHECK(plans.back().cost <= 412 + 404);
}

TEST_CASE("The knapsack keeps the products that take most time for their bytes",
          "[schedule][baselines][knapsack]") {
  // Half of the bytes hold the two that take long, wherever they stand.
  const std::vector<test::Link> links = {
      {"aten::mm", 5, 10}, {"aten::mm", 500, 10}, {"aten::mm", 700, 10}, {"aten::mm", 5, 10}};
  const std::vector<Priced> plans = knapsack(test::chain(links, "aten::mm"), 2);
  // Shares 1, one half and 0: everything, the two, nothing.
  REQUIRE(plans.size() == 3);
  CHECK(plans[0].cost == 1214);
  CHECK(plans[1].cost == 1214 + 5 + 5);
  CHECK(plans[2].cost == 1214 + 1210);
}

TEST_CASE("What is random is saved, whatever the share", "[schedule][baselines][knapsack]") {
  graph::Graph graph = test::chain(
      {{"aten::mm", 100, 10}, {"aten::dropout", 1, 10}, {"aten::mm", 100, 10}}, "aten::mul");
  graph.operators[1].traits.random = true;
  for (const Priced& plan : knapsack(graph, 50)) CHECK(plan.cost < StageProblem::kNever);
}

TEST_CASE("A step without a backward part has no knapsack", "[schedule][baselines][knapsack]") {
  graph::Graph graph = test::chain({{"aten::mm", 1, 1}, {"aten::mm", 1, 1}}, "aten::mm");
  for (graph::Operator& op : graph.operators) op.phase = graph::Phase::kForward;
  CHECK(knapsack(graph, 10).empty());
}

TEST_CASE("What is made again is made once and kept to its last use", "[schedule][baselines]") {
  // Two backward operators read the result of the first link, which is not kept.
  graph::Graph graph = test::chain({{"a", 100, 10}, {"b", 10, 10}, {"c", 1, 10}}, "g");
  graph.operators[4].alternatives[0].reads.push_back({{0, 1}, 0, 10});
  const StageGraph stages = stage_graph(graph, {}, kMaxBytes);
  const auto model = StageModel::make(stages.problem);
  Recomputation plan(stages.problem);
  keep_made_once(stages.problem, 1, stages.problem.stages.size() - 1, {false, false, false},
                 {false, false, false}, plan);
  CHECK(evaluate(*model, plan).cost == 2 * 111 + 3);
  CHECK(evaluate(*model, Recomputation(stages.problem)).cost > 2 * 111 + 3);
}

TEST_CASE("Plans of the knapsack are what the referee replays", "[schedule][baselines][knapsack]") {
  const auto seed = GENERATE(range(1U, 9U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  constexpr const char* kNames[] = {"aten::mm", "aten::relu", "aten::cat", "aten::sum"};
  int checked = 0;
  for (int k = 0; k < 60; ++k) {
    graph::Graph graph = test::random_graph(random, 2 + random() % 14);
    test::split(graph, random);
    for (graph::Operator& op : graph.operators) op.name = kNames[random() % 4];
    const StageGraph stages = stage_graph(graph, {}, kMaxBytes);
    const auto model = StageModel::make(stages.problem);
    knapsack_plans(graph, stages, 8, [&](const Recomputation& plan) {
      const RecomputationCost cost = evaluate(*model, plan);
      if (cost.cost >= StageProblem::kNever) return;
      const graph::Verdict verdict = graph::replay(graph, to_schedule(graph, stages, plan));
      REQUIRE(verdict.violation == "");
      REQUIRE(verdict.compute_ns == static_cast<std::uint64_t>(cost.cost));
      ++checked;
    });
  }
  CHECK(checked > 50);
}

TEST_CASE("Planning begins with what a compiler would keep", "[schedule][baselines][joint]") {
  // A read passes over all of it, so that Chen's rule has nowhere to split.
  std::vector<test::Link> links;
  for (int k = 0; k < 60; ++k) {
    links.push_back({"aten::mm", k % 2 == 0 ? 140U : 60U, 10});
    links.push_back({"aten::relu", 1, 10});
  }
  graph::Graph graph = test::chain(links, "g");
  graph.operators[119].alternatives[0].reads.insert(
      graph.operators[119].alternatives[0].reads.begin(), {{0, 1}, 0, 10});
  StepOptions options;
  options.budget = 400;          // of 1,200
  options.iteration_budget = 1;  // too few to get there
  options.time_limit_seconds = 1e9;
  const StepResult found = plan_step(graph, options);
  REQUIRE(found.schedule);
  CAPTURE(found.base_ns, found.verdict.ns, found.schedule->engine);
  CHECK(found.verdict.ns <= found.base_ns + 30 * 60 + 60);  // none of the longer products again
}

TEST_CASE("Saved sets come closer in few moves than a search of all plans",
          "[schedule][recomputation][saved]") {
  // Products of random times: which of them to save is a knapsack, and every relu is made again.
  std::mt19937 random(3);
  std::vector<test::Link> links;
  for (int k = 0; k < 100; ++k) {
    links.push_back({"x", 50 + random() % 500, 10});
    links.push_back({"y", 1, 10});
  }
  graph::Graph graph = test::chain(links, "g");
  graph.operators[199].alternatives[0].reads.insert(
      graph.operators[199].alternatives[0].reads.begin(), {{0, 1}, 0, 10});
  const StageGraph stages = stage_graph(graph, {}, 900);  // of 2,000
  const auto model = StageModel::make(stages.problem);
  SavedSetOptions few;
  few.moves = 6000;
  const std::optional<Recomputation> saved = search_saved_sets(stages.problem, few);
  REQUIRE(saved);
  const RecomputationCost cost = evaluate(*model, *saved);
  CHECK(cost.excess == 0);
  RecomputationOptions options;
  options.engine = "recompute";
  options.iteration_budget = few.moves;
  options.time_limit_seconds = 1e9;
  const RecomputationResult all = plan_recomputation(stages.problem, options);
  CHECK((!all.plan || cost.cost < all.cost));
  // From a plan that is there it is never worse, and without room for any it says so.
  few.start = saved;
  few.moves = 30;
  CHECK(evaluate(*model, *search_saved_sets(stages.problem, few)).cost <= cost.cost);
  const StageGraph tight = stage_graph(graph, {}, 15);
  few.start.reset();
  CHECK(!search_saved_sets(tight.problem, few));
}

TEST_CASE("Saved sets of random steps fit their budget and are what the referee replays",
          "[schedule][recomputation][saved]") {
  const auto seed = GENERATE(range(1U, 5U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  int checked = 0;
  for (int k = 0; k < 60; ++k) {
    graph::Graph graph = test::random_graph(random, 2 + random() % 14);
    test::split(graph, random);
    StageGraph stages = stage_graph(graph, {}, kMaxBytes);
    const auto model = StageModel::make(stages.problem);
    stages.problem.budget = std::max<std::int64_t>(
        evaluate(*model, keep_everything(stages.problem)).peak * 95 / 100, 1);
    SavedSetOptions options;
    options.moves = 300;
    options.seed = seed;
    const std::optional<Recomputation> found = search_saved_sets(stages.problem, options);
    if (!found) continue;
    const graph::Verdict verdict = graph::replay(graph, to_schedule(graph, stages, *found));
    REQUIRE(verdict.violation == "");
    CHECK(verdict.peak <= static_cast<Bytes>(stages.problem.budget));
    ++checked;
  }
  CHECK(checked > 0);
}

TEST_CASE("A plan by MONeT's rules costs no more when it is run", "[schedule][baselines][monet]") {
  const auto seed = GENERATE(range(1U, 9U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  int checked = 0;
  for (int k = 0; k < 60; ++k) {
    graph::Graph graph = test::random_graph(random, 2 + random() % 14);
    test::split(graph, random);
    const StageGraph stages = stage_graph(graph, {}, kMaxBytes);
    const auto model = StageModel::make(stages.problem);
    MonetForm form = monet_form(stages.problem);
    REQUIRE(form.problem.violation() == "");
    const auto monet = StageModel::make(form.problem);
    form.problem.budget = evaluate(*monet, keep_everything(form.problem)).peak * 3 / 4;
    RecomputationOptions options;
    options.iteration_budget = 200;
    options.time_limit_seconds = 1e9;
    const RecomputationResult found = plan_recomputation(form.problem, options);
    for (const Recomputation& plan : {found.plan.value_or(keep_everything(form.problem)),
                                      test::any_plan(form.problem, random)}) {
      const RecomputationCost theirs = evaluate(*monet, plan);
      const Recomputation mine = exact_plan(stages.problem, form, plan);
      const RecomputationCost cost = evaluate(*model, mine);
      if (theirs.cost >= StageProblem::kNever || cost.cost >= StageProblem::kNever) continue;
      CHECK(cost.cost <= theirs.cost);
      const graph::Verdict verdict = graph::replay(graph, to_schedule(graph, stages, mine));
      REQUIRE(verdict.violation == "");
      ++checked;
    }
  }
  CHECK(checked > 30);
}

TEST_CASE("With everything kept MONeT's rules need what a step needs, and what they count twice",
          "[schedule][baselines][monet]") {
  const graph::Graph graph =
      test::chain({{"a", 5, 10}, {"b", 5, 20}, {"c", 5, 30}, {"d", 5, 40}}, "g");
  const StageGraph stages = stage_graph(graph, {}, kMaxBytes);
  const MonetForm form = monet_form(stages.problem);
  CHECK(form.problem.values.size() == 4);
  CHECK(form.problem.nodes[2].local == std::vector<StageValue>{1});
  CHECK(form.problem.nodes[2].local_bytes == 20);
  const auto exact = StageModel::make(stages.problem), monet = StageModel::make(form.problem);
  CHECK(evaluate(*exact, keep_everything(stages.problem)).peak == 100);
  const RecomputationCost theirs = evaluate(*monet, keep_everything(form.problem));
  CHECK(theirs.cost == 24);
  CHECK(theirs.peak >= 100);
  CHECK(exact_plan(stages.problem, form, keep_everything(form.problem)) ==
        keep_everything(stages.problem));
}

}  // namespace berth::schedule
