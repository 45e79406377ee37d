// What is kept and made again: incremental prices against full ones, three accounts against second
// ones, the search against the least of all plans.
#include "csrc/schedule/recomputation/recomputation.h"

#include "csrc/core/check.h"
#include "csrc/papers/published.h"
#include "csrc/schedule/recomputation/search.h"
#include "tests/catch.h"
#include "tests/schedule/published.h"
#include "tests/schedule/random_stages.h"
#include "tests/schedule/stage_accounts.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>

using namespace berth;
using namespace berth::schedule;
using berth::test::fetched_graphs;
using berth::test::Kept;
using berth::test::random_stage_problem;
using berth::test::StageAccount;
using berth::test::StageAccounts;

namespace {

constexpr std::array kRules = {StageRules::kExact, StageRules::kCheckmate, StageRules::kMonet};

StageCost price(StageModel& model, const Recomputation& plan, std::size_t t, Words runs) {
  const auto bytes = [&](std::size_t row) {
    std::int64_t sum = 0;
    for_each_bit(plan.kept.row(row),
                 [&](std::size_t v) { sum += model.problem().values[v].bytes; });
    return sum;
  };
  return model.evaluate(t, plan.alternatives[t],
                        {plan.kept.row(t), plan.kept.row(t + 1), bytes(t), bytes(t + 1)}, runs);
}

// The stages whose price a working plan has otherwise than a full evaluation does.
std::size_t wrong_stages(const WorkingPlan& plan, StageModel& model) {
  BitTable runs(1, model.problem().nodes.size());
  std::size_t wrong = 0;
  for (std::size_t t = 0; t < model.problem().stages.size(); ++t) {
    const StageCost full = price(model, plan.plan(), t, runs.row(0));
    const StageCost& kept = plan.stage(t);
    wrong += full.cost != kept.cost || full.peak != kept.peak || full.more != kept.more ||
             full.less != kept.less || !std::ranges::equal(runs.row(0), plan.runs(t));
  }
  return wrong;
}

RecomputationMove random_flips(std::mt19937_64& random, const StageProblem& problem) {
  RecomputationMove move;
  const auto stages = static_cast<std::uint32_t>(problem.stages.size());
  for (std::uint64_t k = random() % 3; k < 3; ++k) {
    const auto value = static_cast<StageValue>(random() % problem.values.size());
    if (std::ranges::any_of(move.flips, [&](const auto& one) { return one.value == value; }))
      continue;
    const auto first = static_cast<std::uint32_t>(random() % stages);
    move.flips.push_back(
        {value, first, first + static_cast<std::uint32_t>(random() % stages), random() % 2 == 0});
  }
  const auto t = static_cast<std::uint32_t>(random() % stages);
  if (random() % 4 == 0 && !problem.stages[t].alternatives.empty()) {
    move.stage = t;
    move.alternative = static_cast<std::uint8_t>(random() % problem.stages[t].alternatives.size());
  }
  return move;
}

bool same_row(const Recomputation& a, const Recomputation& b, std::size_t row) {
  return std::ranges::equal(a.kept.row(row), b.kept.row(row));
}

// By Checkmate's rules nothing runs before its own stage.
bool may_be_there(const StageProblem& problem, std::size_t row, StageValue v) {
  return problem.values[v].keepable &&
         (problem.rules != StageRules::kCheckmate || problem.values[v].maker < row);
}

Recomputation random_plan(std::mt19937_64& random, const StageProblem& problem) {
  Recomputation plan(problem);
  const std::uint64_t share = 1 + random() % 4;
  for (std::size_t row = 1; row < problem.stages.size(); ++row)
    for (StageValue v = 0; v < problem.values.size(); ++v)
      if (may_be_there(problem, row, v) && random() % 5 < share) plan.kept.add(row, v);
  for (std::size_t t = 0; t < problem.stages.size(); ++t)
    if (!problem.stages[t].alternatives.empty())
      plan.alternatives[t] =
          static_cast<std::uint8_t>(random() % problem.stages[t].alternatives.size());
  return plan;
}

Kept set_of(const Recomputation& plan, std::size_t row, std::size_t values) {
  Kept kept(values);
  for (std::size_t v = 0; v < values; ++v) kept[v] = plan.kept.has(row, v);
  return kept;
}

// Whether the second account says of a stage what the model says.
bool accounts_agree(StageModel& model, StageAccounts& accounts, const Recomputation& plan,
                    std::size_t t) {
  const StageProblem& problem = model.problem();
  BitTable runs(1, problem.nodes.size());
  const StageCost ours = price(model, plan, t, runs.row(0));
  const StageAccount second =
      accounts(t, plan.alternatives[t], set_of(plan, t, problem.values.size()),
               set_of(plan, t + 1, problem.values.size()));
  if (second.fits != (ours.peak <= problem.budget)) return false;
  return !second.fits || (second.cost == ours.cost && second.peak == ours.peak);
}

// The least cost of all plans within the budget, by the second account: a stage depends on the rows
// around it, so paths over sets of kept values are all plans.
std::optional<std::int64_t> least_cost(const StageProblem& problem) {
  const std::size_t values = problem.values.size(), sets = std::size_t{1} << values;
  REQUIRE(values <= 7);
  StageAccounts account(problem);
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> reached(sets, kNone);
  reached[0] = 0;
  const auto set_of_bits = [&](std::size_t bits) {
    Kept kept(values);
    for (std::size_t v = 0; v < values; ++v) kept[v] = (bits >> v & 1) != 0;
    return kept;
  };
  for (std::size_t t = 0; t < problem.stages.size(); ++t) {
    std::vector<std::int64_t> next(sets, kNone);
    for (std::size_t before = 0; before < sets; ++before) {
      if (reached[before] == kNone) continue;
      for (std::size_t after = 0; after < sets; ++after) {
        const Kept kept = set_of_bits(after);
        if (t + 1 == problem.stages.size() && after != 0) break;
        bool legal = true;
        for (std::size_t v = 0; v < values; ++v) legal &= !kept[v] || problem.values[v].keepable;
        if (!legal) continue;
        const std::size_t count = std::max<std::size_t>(problem.stages[t].alternatives.size(), 1);
        for (std::size_t a = 0; a < count; ++a) {
          const StageAccount stage = account(t, a, set_of_bits(before), kept);
          if (!stage.fits || stage.cost >= StageProblem::kNever) continue;
          next[after] = std::min(next[after], reached[before] + stage.cost);
        }
      }
    }
    reached = std::move(next);
  }
  if (reached[0] == kNone) return std::nullopt;
  return reached[0];
}

RecomputationOptions budgeted(std::uint64_t moves) {
  RecomputationOptions options;
  options.time_limit_seconds = std::numeric_limits<double>::infinity();
  options.iteration_budget = moves;
  return options;
}

std::vector<std::string> published_files() {
  std::vector<std::string> files;
  if (const auto folder = fetched_graphs("monet"))
    for (const auto& entry : std::filesystem::directory_iterator(*folder))
      if (entry.path().extension() == ".json") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

// A chain of three whose backward part reads all three, last first: drawn in the tests below.
StageProblem chain() {
  StageProblem problem;
  for (StageNode n = 0; n < 3; ++n) {
    StageProblem::NodeOf node;
    if (n > 0) node.reads = {n - 1};
    node.makes = {n};
    node.first = {{1, 0}};
    problem.nodes.push_back(node);
    problem.values.push_back({10, n});
  }
  problem.stages.push_back({0, 0, {0, 1, 2}, {}});
  for (const StageValue read : {2U, 1U, 0U})
    problem.stages.push_back({0, 0, {}, {{{read}, {{5, 0}}}}});
  problem.budget = 30;
  return problem;
}

}  // namespace

TEST_CASE("A move changes the price of a plan as a full evaluation says", "[recomputation]") {
  constexpr unsigned kSeed = 7;
  CAPTURE(kSeed);
  std::mt19937 made(kSeed);
  std::mt19937_64 random(kSeed);
  std::uint64_t applied = 0, spared = 0;
  for (int round = 0; round < 90; ++round) {
    const StageRules rules = kRules[round % 3];
    const std::size_t nodes = round % 10 == 9 ? 75 : 4 + made() % 16;
    const StageProblem problem = random_stage_problem(made, rules, nodes, 2 + made() % 12);
    const auto model = StageModel::make(problem), second = StageModel::make(problem);
    WorkingPlan plan(*model, random_plan(random, problem));
    MoveMaker maker(*model, plan, random, {});
    CAPTURE(round, nodes, problem.stages.size());
    for (int k = 0; k < 200; ++k) {
      RecomputationMove move;
      if (k % 3 == 0)
        move = random_flips(random, problem);
      else
        maker.make(move);
      const Recomputation old = plan.plan();
      const std::uint64_t evaluations = plan.evaluations();
      if (!plan.apply(move)) {
        REQUIRE(plan.plan() == old);
        continue;
      }
      ++applied;
      std::uint64_t touched = 0;
      for (std::size_t t = 0; t < problem.stages.size(); ++t)
        touched += !same_row(old, plan.plan(), t) || !same_row(old, plan.plan(), t + 1) ||
                   old.alternatives[t] != plan.plan().alternatives[t];
      REQUIRE(plan.evaluations() - evaluations <= touched);
      spared += touched - (plan.evaluations() - evaluations);
      const RecomputationCost full = evaluate(*second, plan.plan());
      REQUIRE(plan.cost() + plan.changed_cost() == full.cost);
      REQUIRE(plan.excess() + plan.changed_excess() == full.excess);
      if (random() % 2 == 0) {
        plan.accept();
        REQUIRE(plan.cost() == full.cost);
        REQUIRE(plan.excess() == full.excess);
      } else {
        plan.undo();
        REQUIRE(plan.plan() == old);
      }
      REQUIRE(wrong_stages(plan, *second) == 0);
    }
  }
  CHECK(applied > 5000);
  CHECK(spared > 500);
}

TEST_CASE("No move changes the first row of a value that is held", "[recomputation]") {
  constexpr unsigned kSeed = 17;
  CAPTURE(kSeed);
  std::mt19937 made(kSeed);
  std::mt19937_64 random(kSeed);
  std::uint64_t others = 0;
  for (int round = 0; round < 30; ++round) {
    const StageProblem problem = random_stage_problem(made, kRules[round % 3], 12, 8);
    const auto model = StageModel::make(problem);
    const Recomputation start = random_plan(random, problem);
    WorkingPlan plan(*model, start);
    MoveMaker maker(*model, plan, random, {0, 3, 5});
    for (int k = 0; k < 300; ++k) {
      RecomputationMove move;
      maker.make(move);
      if (plan.apply(move)) plan.accept();
      for (const StageValue value : {0U, 3U, 5U})
        REQUIRE(plan.plan().kept.has(1, value) == start.kept.has(1, value));
      others += !same_row(plan.plan(), start, 1);
    }
  }
  CHECK(others > 1000);
}

TEST_CASE("Each rule gives a stage the memory and time that a second account gives it",
          "[recomputation]") {
  constexpr unsigned kSeed = 11;
  CAPTURE(kSeed);
  std::mt19937 made(kSeed);
  std::mt19937_64 random(kSeed);
  std::array<std::uint64_t, 2> stages{};
  for (int round = 0; round < 600; ++round) {
    const StageRules rules = kRules[round % 3];
    StageProblem problem = random_stage_problem(made, rules, 2 + made() % 9, 2 + made() % 6);
    if (round % 5 == 0) problem.budget = std::numeric_limits<std::int64_t>::max() / 4;
    const auto model = StageModel::make(problem);
    StageAccounts accounts(problem);
    for (int k = 0; k < 6; ++k) {
      const Recomputation plan = random_plan(random, problem);
      for (std::size_t t = 0; t < problem.stages.size(); ++t) {
        CAPTURE(round, k, t, static_cast<int>(rules));
        BitTable runs(1, problem.nodes.size());
        ++stages[price(*model, plan, t, runs.row(0)).peak <= problem.budget];
        REQUIRE(accounts_agree(*model, accounts, plan, t));
      }
    }
  }
  CHECK(stages[0] > 2000);
  CHECK(stages[1] > 2000);
}

TEST_CASE("A result that is made beside a kept copy of it ends with its maker", "[recomputation]") {
  // Operator 0 makes 0 and 1; 0 is kept for stage 1, whose end reads both.
  StageProblem problem;
  problem.nodes.resize(1);
  problem.nodes[0].makes = {0, 1};
  problem.nodes[0].first = {{1, 0}};
  problem.values = {{100, 0}, {10, 0}};
  problem.stages = {{0, 0, {0}, {}}, {0, 50, {}, {{{0, 1}, {{1, 0}}}}}};
  const auto model = StageModel::make(problem);
  Recomputation plan(problem);
  plan.kept.add(1, 0);
  // While it runs: the kept one, and both that it makes. At the end: one of each, and 50.
  CHECK(evaluate(*model, plan).peak == 210);
  problem.stages[1].closing = 110;
  CHECK(evaluate(*StageModel::make(problem), plan).peak == 220);
}

TEST_CASE("Each published plan costs what was published and stays in its budget",
          "[recomputation][acceptance]") {
  std::size_t plans = 0, changed = 0, flips = 0;
  constexpr unsigned kSeed = 3;
  CAPTURE(kSeed);
  std::mt19937_64 random(kSeed);
  const std::vector<std::string> files = published_files();
  for (const std::string& file : files) {
    for (PublishedGraph& graph : read_published(file)) {
      for (const PublishedPlan& published : graph.plans) {
        CAPTURE(graph.name, published.budget_gb);
        ++plans;
        graph.problem.budget = published_budget(published.budget_gb);
        const auto model = StageModel::make(graph.problem);
        const RecomputationCost cost = evaluate(*model, published.plan);
        CHECK(cost.cost == published.cost);
        CHECK(cost.excess == 0);
        WorkingPlan plan(*model, published.plan);
        for (int k = 0; k < 5; ++k) {
          const auto value = static_cast<StageValue>(random() % graph.problem.values.size());
          const auto row =
              static_cast<std::uint32_t>(1 + random() % (graph.problem.stages.size() - 1));
          const bool keep = !plan.plan().kept.has(row, value);
          REQUIRE(plan.apply({.flips = {{value, row, row, keep}}, .stage = {}, .alternative = 0}));
          const RecomputationCost full = evaluate(*model, plan.plan());
          REQUIRE(plan.cost() + plan.changed_cost() == full.cost);
          REQUIRE(plan.excess() + plan.changed_excess() == full.excess);
          changed += full.cost != cost.cost || full.peak != cost.peak;
          ++flips;
          plan.undo();
        }
      }
    }
  }
  if (files.empty()) return;
  CHECK(plans == 90);
  CHECK(2 * changed > flips);
}

TEST_CASE("Published plans and changes of them have the price of a second account",
          "[recomputation][acceptance]") {
  constexpr unsigned kSeed = 4;
  CAPTURE(kSeed);
  std::mt19937_64 random(kSeed);
  for (const std::string& file : published_files()) {
    for (PublishedGraph& graph : read_published(file)) {
      if (graph.plans.empty()) continue;
      const PublishedPlan& published = graph.plans[random() % graph.plans.size()];
      const StageProblem& problem = graph.problem;
      graph.problem.budget = published_budget(published.budget_gb);
      const auto model = StageModel::make(problem);
      StageAccounts accounts(problem);
      Recomputation plan = published.plan;
      for (int k = 0; k < 6; ++k) {
        const std::size_t t = 1 + random() % (problem.stages.size() - 1);
        CAPTURE(graph.name, published.budget_gb, t);
        REQUIRE(accounts_agree(*model, accounts, plan, t));
        for (const std::size_t row : {t, t + 1}) {
          const auto value = static_cast<StageValue>(random() % problem.values.size());
          if (row < problem.stages.size() && may_be_there(problem, row, value))
            plan.kept.flip(row, value);
        }
        REQUIRE(accounts_agree(*model, accounts, plan, t));
      }
      REQUIRE(accounts_agree(*model, accounts, plan, 0));
    }
  }
}

TEST_CASE("The search finds the least of all plans of small problems", "[recomputation][oracle]") {
  constexpr unsigned kSeed = 21;
  CAPTURE(kSeed);
  std::mt19937 random(kSeed);
  std::array<int, 2> counted{};
  for (int round = 0; round < 240; ++round) {
    const StageRules rules = kRules[round % 3];
    const StageProblem problem =
        random_stage_problem(random, rules, 3 + random() % 3, 3 + random() % 2);
    if (problem.values.size() > 5) continue;
    CAPTURE(round, static_cast<int>(rules));
    const auto least = least_cost(problem);
    const RecomputationResult result = plan_recomputation(problem, budgeted(40'000));
    ++counted[least.has_value()];
    REQUIRE(result.plan.has_value() == least.has_value());
    CHECK(result.why_not.empty() == least.has_value());
    CHECK(result.moves <= 40'000);
    StageProblem less = problem;
    less.budget = result.least_budget - 1;
    CHECK_FALSE(least_cost(less));
    if (!least) continue;
    CHECK(result.cost == *least);
    CHECK(result.cost_bound <= *least);
    CHECK(result.least_budget <= result.peak);
    CHECK(result.peak <= problem.budget);
    if (result.proven_optimal) CHECK(result.cost == result.cost_bound);
    StageAccounts account(problem);
    const auto model = StageModel::make(problem);
    for (std::size_t t = 0; t < problem.stages.size(); ++t)
      CHECK(accounts_agree(*model, account, *result.plan, t));
  }
  CHECK(counted[0] > 5);
  CHECK(counted[1] > 40);
}

TEST_CASE("A chain within two of its three results makes the first one again", "[recomputation]") {
  StageProblem problem = chain();
  const RecomputationResult all = plan_recomputation(problem, budgeted(2'000));
  CHECK(all.cost == 18);
  CHECK(all.peak == 30);
  CHECK(all.proven_optimal);
  problem.budget = 20;
  const RecomputationResult less = plan_recomputation(problem, budgeted(20'000));
  REQUIRE(less.plan);
  CHECK(less.cost == 19);
  CHECK(less.peak == 20);
  problem.budget = 19;
  const RecomputationResult none = plan_recomputation(problem, budgeted(2'000));
  CHECK_FALSE(none.plan);
  CHECK(none.least_budget == 20);
  CHECK(none.why_not == "some operator alone needs 20, the budget is 19");
}

TEST_CASE("An operator that must not run again does not, even where nothing else fits",
          "[recomputation]") {
  StageProblem problem = chain();
  problem.budget = 20;
  problem.nodes[0].only_once = true;
  const RecomputationResult none = plan_recomputation(problem, budgeted(20'000));
  CHECK_FALSE(none.plan);
  CHECK(none.why_not.starts_with("nothing was found that fits 20"));
  problem.budget = 30;
  CHECK(plan_recomputation(problem, budgeted(2'000)).cost == 18);
}

TEST_CASE("An operator that one alternative alone needs is not in the bound", "[recomputation]") {
  StageProblem problem = chain();
  problem.stages[0].must_run = {0};
  problem.stages.resize(2);
  problem.stages[1].alternatives = {{{2}, {{5, 0}}}, {{0}, {{6, 0}}}};
  const RecomputationResult result = plan_recomputation(problem, budgeted(2'000));
  CHECK(result.cost == 7);  // 0 in the forward part, and the second alternative
  CHECK(result.cost_bound <= 7);
}

TEST_CASE("By MONeT's rules what is kept and read counts behind the last operator too",
          "[recomputation]") {
  // Stage 1 makes 0 again, which has less than no workspace, while nothing else is there.
  StageProblem problem;
  problem.rules = StageRules::kMonet;
  for (StageNode n = 0; n < 2; ++n) {
    StageProblem::NodeOf node;
    node.makes = {n};
    node.first = {{1, -10}};
    problem.nodes.push_back(node);
    problem.values.push_back({20, n});
  }
  problem.stages = {{5, 0, {}, {}}, {7, 0, {}, {{{0}, {{1, -20}}}}}};
  CHECK(evaluate(*StageModel::make(problem), Recomputation(problem)).peak == 27);
  problem.stages = {{5, 0, {}, {}}};
  CHECK(evaluate(*StageModel::make(problem), Recomputation(problem)).peak == 5);
}

TEST_CASE("A plan depends on the seed and the number of moves alone", "[recomputation]") {
  constexpr unsigned kSeed = 31;
  CAPTURE(kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 9; ++round) {
    const StageProblem problem = random_stage_problem(random, kRules[round % 3], 14, 10);
    RecomputationOptions options = budgeted(9'000);
    options.seed = 5;
    const RecomputationResult first = plan_recomputation(problem, options),
                              second = plan_recomputation(problem, options);
    CHECK(first.plan == second.plan);
    CHECK(first.moves == second.moves);
    CHECK(first.evaluations == second.evaluations);
    CHECK(first.moves <= 9'000);
  }
}

TEST_CASE("A cancelled or hurried search has a legal plan or says why not, none worse than given",
          "[recomputation]") {
  constexpr unsigned kSeed = 37;
  CAPTURE(kSeed);
  std::mt19937 random(kSeed);
  int plans = 0, given = 0;
  const auto check = [&](const StageProblem& problem, const RecomputationOptions& options) {
    const RecomputationResult result = plan_recomputation(problem, options);
    CHECK(result.plan.has_value() == result.why_not.empty());
    if (options.given) {
      ++given;
      REQUIRE(result.plan);
      CHECK(result.cost <= evaluate(*StageModel::make(problem), *options.given).cost);
    }
    if (!result.plan) return result;
    ++plans;
    const RecomputationCost cost = evaluate(*StageModel::make(problem), *result.plan);
    CHECK(cost.cost == result.cost);
    CHECK(cost.excess == 0);
    return result;
  };
  for (int round = 0; round < 18; ++round) {
    CAPTURE(round);
    const StageProblem problem = random_stage_problem(random, kRules[round % 3], 12, 8);
    std::atomic<bool> cancel = true;
    RecomputationOptions options = budgeted(4'000);
    options.cancel = &cancel;
    check(problem, options);
    for (int wait = 0; wait < 6; ++wait) {
      cancel = false;
      std::jthread canceller([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(100 * wait));
        cancel = true;
      });
      check(problem, options);
    }
    for (const double seconds : {0.001, 0.05}) {
      RecomputationOptions hurried;
      hurried.time_limit_seconds = seconds;
      hurried.given = check(problem, hurried).plan;
      check(problem, hurried);
      hurried.engine = "keep";
      check(problem, hurried);
    }
  }
  CHECK(plans > 50);
  CHECK(given > 20);
}

TEST_CASE("A larger budget never costs time where the plan of the smaller one is given",
          "[recomputation]") {
  constexpr unsigned kSeed = 41;
  CAPTURE(kSeed);
  std::mt19937 random(kSeed);
  int compared = 0;
  for (int round = 0; round < 12; ++round) {
    StageProblem problem = random_stage_problem(random, kRules[round % 3], 12, 8);
    RecomputationOptions options = budgeted(1'500);
    std::optional<std::int64_t> before;
    for (int step = 0; step < 8; ++step) {
      const RecomputationResult result = plan_recomputation(problem, options);
      REQUIRE((result.plan || !before));
      if (before) CHECK(result.cost <= *before);
      compared += before.has_value();
      if (result.plan) before = result.cost;
      options.given = result.plan;
      problem.budget += 1 + problem.budget / 20;
    }
  }
  CHECK(compared > 40);
}

TEST_CASE("What has no results, or little to choose, is planned all the same", "[recomputation]") {
  StageProblem problem;
  problem.stages.resize(1);
  CHECK(plan_recomputation(problem, budgeted(2'000)).proven_optimal);
  // Closing operators alone, whose fastest alternatives do not fit.
  for (int t = 0; t < 4; ++t)
    problem.stages.push_back({0, 0, {}, {{{}, {{1, 50}, {7, 10}}}, {{}, {{3, 40}}}}});
  problem.budget = 20;
  for (const StageRules rules : {StageRules::kExact, StageRules::kMonet}) {
    problem.rules = rules;
    const RecomputationResult result = plan_recomputation(problem, budgeted(2'000));
    REQUIRE(result.plan);
    CHECK(result.cost == 28);
    CHECK(result.proven_optimal);
  }
}

TEST_CASE("What is no problem of stages, and no plan of one, is refused by name",
          "[recomputation]") {
  constexpr unsigned kSeed = 43;
  std::mt19937 random(kSeed);
  CHECK(chain().violation().empty());
  const auto wrong = [](auto damage) {
    StageProblem problem = chain();
    damage(problem);
    CHECK_THROWS_AS(plan_recomputation(problem, budgeted(1)), Error);
    return problem.violation();
  };
  using P = StageProblem;
  const auto says = [](const char* text) { return Catch::Matchers::Contains(text); };
  CHECK_THAT(wrong([](P& p) { p.stages.clear(); }), says("3 operators in 0 stages"));
  CHECK_THAT(wrong([](P& p) { p.stages.resize(P::kMostStages + 1); }), says("the most is 16384"));
  CHECK_THAT(wrong([](P& p) { p.nodes[1].first.clear(); }), says("operator 1 has no alternative"));
  CHECK_THAT(wrong([](P& p) { p.nodes[1].always_in_place = true; }),
             says("operator 1 runs in place of nothing"));
  CHECK_THAT(wrong([](P& p) { p.nodes[0].with_previous = true; }), says("there is none"));
  CHECK_THAT(wrong([](P& p) { p.nodes[1].first[0].cost = -1; }), says("operator 1 costs -1"));
  CHECK_THAT(wrong([](P& p) { p.nodes[1].again = {{P::kNever, 0}}; }), says("operator 1 costs"));
  CHECK_THAT(wrong([](P& p) {
               p.nodes[1].in_place = {{1, -P::kMostBytes}};
             }),
             says("operator 1 has a workspace of"));
  CHECK_THAT(wrong([](P& p) { p.nodes[1].local_bytes = -1; }), says("operator 1 has -1 bytes"));
  CHECK_THAT(wrong([](P& p) { p.nodes[1].makes = {2}; }), says("operator 1 makes result 2"));
  CHECK_THAT(wrong([](P& p) { p.nodes[1].makes = {7}; }), says("operator 1 makes result 7"));
  CHECK_THAT(wrong([](P& p) { p.nodes[1].makes = {1, 1}; }), says("makes result 1 twice"));
  CHECK_THAT(wrong([](P& p) { p.nodes[1].makes = {}; }), says("result 1 is made by no operator"));
  CHECK_THAT(wrong([](P& p) { p.nodes[1].reads = {1}; }), says("operator 1 reads result 1"));
  CHECK_THAT(wrong([](P& p) { p.nodes[1].reads = {9}; }), says("operator 1 reads result 9"));
  CHECK_THAT(wrong([](P& p) { p.nodes[2].reads = {1, 0, 1}; }), says("reads result 1 twice"));
  CHECK_THAT(wrong([](P& p) { p.nodes[1].local = {3}; }), says("stands beside result 3"));
  CHECK_THAT(wrong([](P& p) { p.nodes[2].over = 0; }), says("no alternative to do so"));
  CHECK_THAT(wrong([](P& p) {
               p.nodes[2].over = 0;
               p.nodes[2].in_place = {{1, 0}};
             }),
             says("takes over a result that it does not read"));
  CHECK_THAT(wrong([](P& p) { p.values[2].bytes = -5; }), says("result 2 has -5 bytes"));
  CHECK_THAT(wrong([](P& p) { p.values[0].bytes = p.values[1].bytes = P::kMostBytes - 1; }),
             says("all results to 1 together"));
  CHECK_THAT(wrong([](P& p) { p.stages[1].fixed = -5; }), says("stage 1 has -5 bytes"));
  CHECK_THAT(wrong([](P& p) { p.stages[1].closing = P::kMostBytes; }), says("stage 1 has"));
  CHECK_THAT(wrong([](P& p) { p.stages[0].must_run = {3}; }), says("stage 0 runs operator 3"));
  CHECK_THAT(wrong([](P& p) { p.stages[1].alternatives[0].all.clear(); }),
             says("stage 1 has an alternative that cannot run"));
  CHECK_THAT(wrong([](P& p) { p.stages[1].alternatives[0].reads = {3}; }),
             says("stage 1 reads result 3"));
  CHECK_THAT(wrong([](P& p) { p.stages[1].alternatives[0].reads = {2, 1}; }), says("not sorted"));
  CHECK_THAT(wrong([](P& p) {
               p.stages[1].alternatives[0].reads = {2, 2};
             }),
             says("stage 1 reads result 2 twice"));
  CHECK_THAT(wrong([](P& p) { p.stages[1].alternatives.resize(65, p.stages[1].alternatives[0]); }),
             says("stage 1 has 65 alternatives"));
  CHECK_THAT(wrong([](P& p) { p.rules = StageRules::kCheckmate; }),
             says("stage 1 has a closing operator"));
  const auto wrong_monet = [&](auto damage) {
    return wrong([&](P& p) {
      p.rules = StageRules::kMonet;
      damage(p);
    });
  };
  CHECK_THAT(wrong_monet([](P& p) {
               p.values.push_back({1, 2});
               p.nodes[2].makes = {2, 3};
             }),
             says("3 operators have 4 results"));
  CHECK_THAT(wrong_monet([](P& p) {
               p.nodes[0].makes = {0, 1};
               p.values[1].maker = 0;
               p.nodes[1].makes = {};
             }),
             says("operator 0 does not make result 0"));
  CHECK_THAT(wrong_monet([](P& p) { p.nodes[1].local_bytes = 4; }), says("with 0 bytes"));
  CHECK_THAT(wrong_monet([](P& p) {
               p.nodes[2].local = {1, 0};
               p.nodes[2].local_bytes = 20;
             }),
             says("ascending"));
  CHECK_THAT(wrong_monet([](P& p) { p.nodes[1].with_previous = p.nodes[2].with_previous = true; }),
             says("operator 2 runs with the one before it, which does so itself"));
  CHECK_THAT(wrong_monet([](P& p) {
               p.nodes[1].over = 0;
               p.nodes[1].in_place = {{1, 0}};
               p.nodes[2].with_previous = true;
             }),
             says("operator 2 has no alternative in place"));

  const StageProblem problem = chain();
  const auto refused = [&](const Recomputation& plan) {
    RecomputationOptions options = budgeted(1);
    options.given = plan;
    CHECK_THROWS_WITH(plan_recomputation(problem, options),
                      says("none of this problem of 3 results"));
  };
  refused(Recomputation(random_stage_problem(random, StageRules::kExact, 70, 4)));
  refused(Recomputation(random_stage_problem(random, StageRules::kExact, 3, 6)));
  Recomputation plan(problem);
  plan.alternatives[1] = 1;
  refused(plan);
  for (const std::size_t row : {0U, 4U}) {
    Recomputation kept(problem);
    kept.kept.add(row, 0);
    refused(kept);
  }
  RecomputationOptions options = budgeted(1);
  options.engine = "best";
  CHECK_THROWS_WITH(plan_recomputation(problem, options), says("no engine 'best'"));
}
