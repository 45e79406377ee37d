// Checkmate's rounding: what is published of it, and that its plans are ones of the step.
#include "csrc/papers/checkmate_engine.h"
#include "csrc/place/oracle/integer_program.h"
#include "csrc/schedule/recomputation/from_graph.h"
#include "csrc/schedule/recomputation/recomputation.h"
#include "tests/catch.h"
#include "tests/schedule/two_parts.h"

#include <berth/schedule_ilp.h>

#include <algorithm>
#include <random>

namespace berth::schedule {
namespace {

// Whether the tests of this file can run.
bool no_solver() {
  use_checkmate();
  if (!place::unavailable_solver()) return false;
  WARN("skipped: " << *place::unavailable_solver());  // CTest counts it by this word
  return true;
}

struct Rounded {
  CheckmateResult result;
  std::vector<RecomputationCost> plans;
  std::int64_t least = StageProblem::kNever;  // cost of those that fit
};

Rounded checkmate(const StageProblem& problem, std::size_t most_cells = 12'000) {
  Rounded found;
  const auto model = StageModel::make(problem);
  CheckmateOptions options;
  options.most_cells = most_cells;
  found.result = checkmate_engine().plans(problem, options, [&](const Recomputation& plan) {
    found.plans.push_back(evaluate(*model, plan));
    if (found.plans.back().excess == 0)
      found.least = std::min(found.least, found.plans.back().cost);
  });
  return found;
}

}  // namespace

TEST_CASE("Fractions are columns of a relaxed program", "[schedule][checkmate]") {
  if (no_solver()) return;
  // At most 1.5 of two: integers take one, fractions all of it.
  place::IntegerProgram program;
  const auto a = program.add_column(-1, 0, 1), b = program.add_column(-1, 0, 1);
  program.add_row(-place::IntegerProgram::kInfinity, 1.5, {{a, 1}, {b, 1}});
  place::SolverOptions options;
  CHECK(place::solve(program, options).bound == Approx(-1));
  options.relaxed = true;
  const place::SolverResult relaxed = place::solve(program, options);
  CHECK(relaxed.complete);
  CHECK(relaxed.bound == Approx(-1.5).margin(1e-4));
  REQUIRE(relaxed.values.size() == 2);
  CHECK(relaxed.values[0] + relaxed.values[1] == Approx(1.5).margin(1e-4));
}

TEST_CASE("With room for everything rounding makes nothing again", "[schedule][checkmate]") {
  if (no_solver()) return;
  const graph::Graph graph = test::chain({{"a", 5, 10}, {"b", 5, 20}, {"c", 5, 30}}, "g");
  const StageGraph stages = stage_graph(graph, {}, 1000);
  const Rounded found = checkmate(stages.problem);
  CHECK(found.result.blocks == 3);
  CHECK(found.result.stages == 3);
  CHECK(found.result.solved == found.result.programs);
  CHECK(found.least == 18);
}

TEST_CASE("Rounding drops what is cheap to make again, and stays above the optimum",
          "[schedule][checkmate]") {
  if (no_solver()) return;
  std::vector<test::Link> links;
  for (int k = 0; k < 6; ++k) {
    links.push_back({"aten::mm", 1000, 10});
    links.push_back({"aten::relu", 1, 10});
  }
  const graph::Graph graph = test::chain(links, "g");
  const StageGraph stages = stage_graph(graph, {}, 90);  // of 120
  const Rounded found = checkmate(stages.problem);
  RecomputationOptions options;
  options.iteration_budget = 20'000;
  options.time_limit_seconds = 1e9;
  const RecomputationResult best = plan_recomputation(stages.problem, options);
  REQUIRE(best.plan);
  CHECK(found.least >= best.cost);
  CHECK(found.least < 6018 + 1000);  // no product again
}

TEST_CASE("Where a program is too large stages share a block, and plans stay plans",
          "[schedule][checkmate]") {
  if (no_solver()) return;
  std::vector<test::Link> links;
  for (int k = 0; k < 20; ++k) links.push_back({"aten::mm", 10, 10});
  const graph::Graph graph = test::chain(links, "g");
  const StageGraph stages = stage_graph(graph, {}, 140);
  const Rounded whole = checkmate(stages.problem), joined = checkmate(stages.problem, 200);
  CHECK(whole.result.blocks == 20);
  CHECK(joined.result.blocks == 5);
  CHECK(joined.result.columns < whole.result.columns);
  CHECK(whole.least < StageProblem::kNever);
  CHECK(joined.least < StageProblem::kNever);
}

TEST_CASE("No budget below what an operator needs has a program with a solution",
          "[schedule][checkmate]") {
  if (no_solver()) return;
  const graph::Graph graph = test::chain({{"a", 5, 10}, {"b", 5, 20}, {"c", 5, 30}}, "g");
  const StageGraph stages = stage_graph(graph, {}, 40);
  const Rounded found = checkmate(stages.problem);
  CHECK(found.result.solved == 0);
  CHECK(found.plans.empty());
}

TEST_CASE("Rounded plans of random steps never cost less than the bound", "[schedule][checkmate]") {
  if (no_solver()) return;
  std::mt19937 random(7);
  int fitting = 0;
  for (int k = 0; k < 60; ++k) {
    std::vector<test::Link> links(3 + random() % 10);
    for (test::Link& link : links) link = {"x", 1 + random() % 50, 1 + random() % 30};
    const graph::Graph graph = test::chain(links, "g");
    StageGraph stages = stage_graph(graph, {}, kMaxBytes);
    const auto model = StageModel::make(stages.problem);
    stages.problem.budget =
        std::max<std::int64_t>(evaluate(*model, keep_everything(stages.problem)).peak * 8 / 10, 1);
    RecomputationOptions options;
    options.iteration_budget = 100;
    options.time_limit_seconds = 1e9;
    const RecomputationResult bounded = plan_recomputation(stages.problem, options);
    const Rounded found = checkmate(stages.problem);
    if (found.least == StageProblem::kNever) continue;
    CHECK(found.least >= bounded.cost_bound);
    ++fitting;
  }
  CHECK(fitting > 5);
}

}  // namespace berth::schedule
