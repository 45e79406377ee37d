#include "csrc/schedule/joint/reorder.h"
#include "csrc/schedule/joint/working_set.h"
#include "csrc/schedule/order/from_graph.h"
#include "csrc/schedule/order/postpone.h"
#include "tests/catch.h"
#include "tests/support/random_graph.h"
#include "tests/support/random_schedule.h"

#include <berth/error.h>
#include <berth/papers.h>
#include <berth/schedule.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <string>

namespace berth::schedule {
namespace {

using graph::Graph;
using graph::Phase;

// A forward chain of operators that each make `bytes` in `ns`, and a backward one that reads them.
Graph chain(std::size_t length, Bytes bytes, std::uint64_t ns) {
  Graph graph;
  const auto storage = [&] {
    graph.storages.push_back({bytes, graph::StorageClass::kStep, trace::RoleKind::kUnknown});
    return static_cast<graph::StorageId>(graph.storages.size() - 1);
  };
  const auto add = [&](Phase phase, std::vector<graph::StorageId> reads) {
    graph::Operator op;
    op.name = phase == Phase::kForward ? "forward" : "backward";
    op.phase = phase;
    graph::Alternative taken;
    taken.ns = ns;
    for (const graph::StorageId s : reads) taken.reads.push_back({{s, 1}, 0, bytes});
    const graph::StorageId made = storage();
    taken.writes = {{made, 1}};
    op.alternatives = {taken};
    graph.operators.push_back(op);
    return made;
  };
  std::vector<graph::StorageId> made;
  for (std::size_t k = 0; k < length; ++k)
    made.push_back(add(Phase::kForward, k == 0 ? std::vector<graph::StorageId>{}
                                               : std::vector<graph::StorageId>{made.back()}));
  graph::StorageId gradient = made.back();
  for (std::size_t k = length; k-- > 0;)
    gradient = add(Phase::kBackward, gradient == made[k]
                                         ? std::vector<graph::StorageId>{gradient}
                                         : std::vector<graph::StorageId>{gradient, made[k]});
  return graph;
}

StepOptions with(Bytes budget) {
  StepOptions options;
  options.budget = budget;
  options.iteration_budget = 20'000;
  options.time_limit_seconds = 60;
  return options;
}

}  // namespace

TEST_CASE("A chain within a budget makes again what does not fit", "[joint]") {
  const Graph step = chain(10, 100, 1000);
  const StepResult free = plan_step(step, with(100'000));
  REQUIRE(free.schedule);
  REQUIRE(free.proven_optimal);
  REQUIRE(free.verdict.peak == free.base_peak);
  REQUIRE(free.verdict.recomputed == 0);
  const StepResult tight = plan_step(step, with(600));
  REQUIRE(tight.schedule);
  REQUIRE(tight.verdict.peak <= 600);
  REQUIRE(tight.verdict.recomputed > 0);
  REQUIRE(tight.verdict.ns == free.verdict.ns + 1000 * tight.verdict.recomputed);
  // Six values beside each other, three of them for the operator that runs: at least four of ten
  // are made again.
  REQUIRE(tight.verdict.recomputed <= 12);
  REQUIRE(graph::replay(step, *tight.schedule).violation == "");
}

TEST_CASE("A budget below the largest operator names it and what is missing", "[joint]") {
  const StepResult result = plan_step(chain(4, 1 << 20, 1000), with(2 << 20));
  REQUIRE_FALSE(result.schedule);
  REQUIRE(result.least_budget == 3 << 20);
  REQUIRE(result.why_not.find("(backward) needs 3.0 MiB alone, the budget is 2.0 MiB: 1.0 MiB are "
                              "missing") != std::string::npos);
}

// A gradient that the next step drops at once is there when the step begins.
TEST_CASE("A budget below what is there at the beginning is none", "[joint]") {
  Graph step = chain(2, 100, 10);
  step.storages.push_back({.bytes = 10'000, .kind = graph::StorageClass::kInput});
  const Bytes least = least_budget(step).bytes;
  REQUIRE(least >= 10'000);
  const StepResult below = plan_step(step, with(least - 1));
  REQUIRE_FALSE(below.schedule);
  REQUIRE(below.missing_bytes == 1);
  REQUIRE(below.why_not.find("at the beginning") != std::string::npos);
  const StepResult enough = plan_step(step, with(least));
  REQUIRE(enough.schedule);
  REQUIRE(graph::replay(step, *enough.schedule).violation == "");
}

TEST_CASE("Where making again is dear and copies are fast, values are copied", "[joint]") {
  const Graph step = chain(12, Bytes{64} << 20, 100'000'000);
  StepOptions options = with(step.storages.size() / 2 * (Bytes{64} << 20) * 7 / 10);
  const StepResult again = plan_step(step, options);
  REQUIRE(again.schedule);
  REQUIRE(again.verdict.recomputed > 0);
  options.rates = graph::CopyRates{50'000'000'000, 50'000'000'000};
  const StepResult copied = plan_step(step, options);
  REQUIRE(copied.schedule);
  REQUIRE(copied.verdict.peak <= options.budget);
  REQUIRE(copied.verdict.offloaded_bytes > 0);
  REQUIRE(copied.verdict.ns < again.verdict.ns);
}

TEST_CASE("Copies and making again together are no slower than one of them", "[joint]") {
  // Every other operator is cheap to run again; there is time to copy some of the rest.
  Graph step = chain(24, Bytes{64} << 20, 40'000'000);
  for (std::size_t k = 0; k < step.operators.size(); k += 2)
    step.operators[k].alternatives.front().ns = 4'000'000;
  StepOptions options = with((Bytes{64} << 20) * 9);
  options.iteration_budget = 5000;
  options.rates = graph::CopyRates{1'500'000'000, 1'500'000'000};
  options.engine = "recompute";
  const StepResult again = plan_step(step, options);
  options.engine = "offload";
  const StepResult copied = plan_step(step, options);
  options.engine = "auto";
  const StepResult both = plan_step(step, options);
  REQUIRE(again.schedule);
  REQUIRE(copied.schedule);
  REQUIRE(both.schedule);
  REQUIRE(both.verdict.ns <= copied.verdict.ns);
  REQUIRE(both.verdict.ns < again.verdict.ns);
  REQUIRE(both.verdict.offloaded_bytes > 0);
  REQUIRE(both.verdict.recomputed > 0);
}

TEST_CASE("A step that is ordered again needs less, and makes less again", "[joint][unrolled]") {
  std::mt19937 random(1);
  int faster = 0, smaller = 0;
  for (int k = 0; k < 200; ++k) {
    CAPTURE(k);
    Graph graph = test::random_graph(random, 3 + random() % 10);
    for (graph::Operator& op : graph.operators) op.traits.draws_again = false;
    const auto schedule = test::RandomSchedule(random, graph, false).make(false);
    if (!schedule) continue;
    const graph::Verdict before = graph::replay(graph, *schedule);
    OrderOptions how;
    how.iteration_budget = 1000;
    how.time_limit_seconds = 60;
    const Reordered again = reorder(graph, *schedule, before.peak, how);
    const graph::Verdict after = graph::replay(graph, again.schedule);
    REQUIRE(after.violation == "");
    REQUIRE(after.peak <= before.peak);
    REQUIRE(after.ns <= before.ns);
    REQUIRE(again.first_runs.size() == graph.operators.size());
    faster += after.ns < before.ns ? 1 : 0;
    const Reordered tight = reorder(graph, *schedule, 0, how);  // leaves out nothing
    const graph::Verdict least = graph::replay(graph, tight.schedule);
    REQUIRE(least.ns == before.ns);
    smaller += least.peak < before.peak ? 1 : 0;
  }
  REQUIRE(faster > 8);
  REQUIRE(smaller > 20);
}

TEST_CASE("Whatever is planned the referee allows, and more memory never costs time", "[joint]") {
  const auto seed = GENERATE(range(1U, 7U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  int fit = 0;
  for (int k = 0; k < 12; ++k) {
    CAPTURE(k);
    Graph step = test::random_graph(random, 1 + random() % 12);
    for (std::size_t p = step.operators.size() / 2; p < step.operators.size(); ++p)
      step.operators[step.order.empty() ? p : step.order[p]].phase = Phase::kBackward;
    StepOptions options = with(0);
    options.iteration_budget = 500;
    if (random() % 2 == 0) options.rates = graph::CopyRates{};
    const Bytes least = least_budget(step).bytes;
    const std::vector<Bytes> budgets = {least - std::min<Bytes>(least, 1), least, least + 4,
                                        least + 10, least + 1000};
    const std::vector<StepResult> results = plan_budgets(step, budgets, options);
    REQUIRE(results.size() == budgets.size());
    if (least > 0) REQUIRE_FALSE(results[0].schedule);
    REQUIRE(results.back().schedule);  // there is room for everything
    REQUIRE(results.back().proven_optimal);
    for (std::size_t b = 1; b < budgets.size(); ++b) {
      if (!results[b].schedule) {
        REQUIRE_FALSE(results[b - 1].schedule);
        REQUIRE(results[b].why_not != "");
        continue;
      }
      ++fit;
      const graph::Verdict verdict = graph::replay(step, *results[b].schedule);
      REQUIRE(verdict.violation == "");
      REQUIRE(verdict.peak <= budgets[b]);
      REQUIRE(verdict.ns == results[b].verdict.ns);
      REQUIRE(verdict.ns >= results[b].ns_bound);
      if (results[b - 1].schedule) REQUIRE(verdict.ns <= results[b - 1].verdict.ns);
    }
    options.budget = budgets[3];
    const StepResult once = plan_step(step, options), twice = plan_step(step, options);
    REQUIRE(once.schedule == twice.schedule);
  }
  REQUIRE(fit > 20);
}

TEST_CASE("A schedule that does not fit may be what the search for one begins with", "[joint]") {
  std::mt19937 random(1);
  int alone = 0, from_above = 0;
  for (int k = 0; k < 8; ++k) {
    CAPTURE(k);
    Graph step = chain(24, 1024, 1000);
    for (graph::Storage& storage : step.storages) storage.bytes = 64 + random() % 2048;
    for (graph::Operator& op : step.operators) {
      graph::Alternative& taken = op.alternatives.front();
      taken.ns = 100 + random() % 2000;
      for (graph::Read& read : taken.reads) read.bytes = step.storages[read.value.storage].bytes;
    }
    StepOptions options = with(kMaxBytes);
    options.iteration_budget = 300;
    const Bytes least = least_budget(step).bytes;
    StepResult above = plan_step(step, options);
    REQUIRE(above.schedule);
    // Down by halves, as long as something is found.
    options.budget = above.verdict.peak;
    for (int n = 0; n < 8; ++n) {
      options.budget = least + (options.budget - least) / 2;
      options.given.clear();
      const StepResult without = plan_step(step, options);
      options.given = {*above.schedule};
      StepResult with_it = plan_step(step, options);
      alone += without.schedule ? 1 : 0;
      from_above += with_it.schedule ? 1 : 0;
      if (!with_it.schedule) break;
      REQUIRE(with_it.verdict.peak <= options.budget);
      above = std::move(with_it);
    }
  }
  REQUIRE(from_above >= alone);
}

TEST_CASE("Gradients that stay to the end are made again where the backward part has no room",
          "[joint]") {
  // Each layer's backward leaves a gradient of weights for the end; the last one needs a workspace.
  constexpr std::size_t kLayers = 8;
  constexpr Bytes kWeights = 400, kWorkspace = 2000;
  Graph step = chain(kLayers, 100, 1000);
  graph::Operator end;
  end.name = "end";
  end.phase = Phase::kOptimizer;
  end.alternatives.emplace_back();
  for (std::size_t k = kLayers; k < 2 * kLayers; ++k) {
    const auto made = static_cast<graph::StorageId>(step.storages.size());
    step.storages.push_back({kWeights, graph::StorageClass::kStep, trace::RoleKind::kUnknown});
    step.operators[k].alternatives.front().writes.push_back({made, 1});
    end.alternatives.front().reads.push_back({{made, 1}, 0, kWeights});
  }
  step.operators.back().alternatives.front().workspace = kWorkspace;
  step.operators.push_back(end);
  // All of them beside the workspace are too much, and so is one less.
  const StepResult found = plan_step(step, with((kLayers - 2) * kWeights + kWorkspace));
  CAPTURE(found.why_not);
  REQUIRE(found.schedule);
  REQUIRE(found.verdict.peak <= (kLayers - 2) * kWeights + kWorkspace);
  REQUIRE(found.verdict.recomputed > 0);

  // Whatever the budget, and with an input that the last operator of the backward part reads, and
  // no end behind it: what is found is legal and fits.
  const auto input = static_cast<graph::StorageId>(step.storages.size());
  step.storages.push_back({50, graph::StorageClass::kInput, trace::RoleKind::kUnknown});
  for (const std::size_t op : {std::size_t{0}, 2 * kLayers - 1})
    step.operators[op].alternatives.front().reads.push_back({{input, 0}, 0, 50});
  for (const bool with_end : {true, false}) {
    if (!with_end) {
      step.operators.pop_back();
      for (std::size_t k = kLayers; k + 1 < 2 * kLayers; ++k)
        step.operators[2 * kLayers - 1].alternatives.front().reads.push_back(
            {step.operators[k].alternatives.front().writes.back(), 0, kWeights});
    }
    StepOptions options = with(least_budget(step).bytes);
    options.iteration_budget = 2000;
    for (; options.budget < 6500; options.budget += 150) {
      const StepResult any = plan_step(step, options);
      CAPTURE(with_end, options.budget);
      if (any.schedule) REQUIRE(any.verdict.peak <= options.budget);
    }
  }
}

TEST_CASE("Weights decay as late as they may, so that what reads them may run again", "[joint]") {
  // Each forward operator reads a weight that nobody else reads, and that a number from outside
  // changes at some time, before it or behind it.
  Graph step = chain(10, 1 << 20, 1000);
  const auto add_storage = [&](graph::StorageClass kind, Bytes bytes) {
    step.storages.push_back({bytes, kind, trace::RoleKind::kUnknown});
    return static_cast<graph::StorageId>(step.storages.size() - 1);
  };
  const graph::StorageId rate = add_storage(graph::StorageClass::kInput, 64);
  const std::size_t chained = step.operators.size();
  for (graph::OperatorId k = 0; k < 10; ++k) {
    const graph::StorageId weight = add_storage(graph::StorageClass::kResident, 256);
    step.operators[k].alternatives.front().reads.push_back({{weight, 0}, 0, 256});
    graph::Operator decay;
    decay.name = "decay";
    decay.phase = Phase::kOptimizer;
    graph::Alternative taken;
    taken.ns = 1;
    taken.workspace = 4;
    taken.reads = {{{weight, 0}, 0, 256}, {{rate, 0}, 0, 64}};
    taken.writes = {{weight, 1}};
    decay.alternatives = {taken};
    step.operators.push_back(decay);
  }
  for (graph::OperatorId k = 0; k < chained; ++k) {
    step.order.push_back(k);
    if (k < 10) step.order.push_back(static_cast<graph::OperatorId>(chained + k));
  }
  const StepResult late = plan_step(step, with((6 << 20) + 4096));
  CAPTURE(late.why_not);
  REQUIRE(late.schedule);
  REQUIRE(late.verdict.recomputed > 0);

  // Those that must not wait: what reads the weight afterwards comes at once.
  const OrderProblem problem = order_problem(step);
  const Order order = postpone_changes(problem, step.order);
  REQUIRE(problem.violation(order) == "");
  for (std::size_t k = 0; k < order.size(); ++k) REQUIRE((order[k] >= chained) == (k >= chained));
  step.operators[1].alternatives.front().reads.back() = {{rate + 1, 1}, 0, 256};
  const OrderProblem follows = order_problem(step);
  const Order close = postpone_changes(follows, follows.first_order());
  REQUIRE(follows.violation(close) == "");
  const auto decay = std::find(close.begin(), close.end(), chained);
  REQUIRE(*(decay + 1) == 1);
}

TEST_CASE("Without a backward part what runs once is no reason that nothing fits", "[joint]") {
  Graph step = chain(8, 1 << 20, 1000);
  for (graph::Operator& op : step.operators) op.phase = Phase::kForward;
  step.operators[5].traits.random = true;
  const StepResult tight = plan_step(step, with(7 << 20));
  CAPTURE(tight.why_not);
  REQUIRE(tight.schedule);
  REQUIRE(tight.verdict.recomputed > 0);
}

TEST_CASE("Where time was over before a budget was met the reason says so", "[joint]") {
  const Graph step = chain(60, 1 << 20, 1000);
  StepOptions options = with(least_budget(step).bytes);
  options.time_limit_seconds = 1e-9;
  const StepResult found = plan_step(step, options);
  REQUIRE_FALSE(found.schedule);
  REQUIRE(found.why_not.find("before the search's time was over") != std::string::npos);
}

TEST_CASE("Changes of residents come late in any order, and no bytes depend on it", "[joint]") {
  std::mt19937 random(3);
  int moved = 0;
  for (int k = 0; k < 300; ++k) {
    const Graph graph = test::random_graph(random, 1 + random() % 30);
    const OrderProblem problem = order_problem(graph);
    const Order order = graph.order.empty() ? problem.first_order() : graph.order;
    const Order late = postpone_changes(problem, order);
    REQUIRE(problem.violation(late) == "");
    moved += late == order ? 0 : 1;
    // Their own numbers aside: with workspaces of none, and what is from outside there all the
    // time.
    OrderProblem lasting = problem;
    for (OrderValue& value : lasting.values)
      if (value.maker == kNoNode)
        for (Node n = 0; n < lasting.nodes.size(); ++n) value.readers.push_back(n);
    for (OrderProblem::NodeOf& node : lasting.nodes) node.workspace = 0;
    lasting.control = problem.control;
    lasting.derive();
    REQUIRE(peak_of(lasting, late) == peak_of(lasting, order));
  }
  REQUIRE(moved > 30);
}

TEST_CASE("What others would do is legal and within the budget, or not there",
          "[joint][baselines]") {
  const auto seed = GENERATE(range(1U, 5U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::map<std::string, int> fit;
  use_papers();
  for (int k = 0; k < 12; ++k) {
    CAPTURE(k);
    Graph step = test::random_graph(random, 2 + random() % 12);
    for (std::size_t p = step.operators.size() / 2; p < step.operators.size(); ++p)
      step.operators[step.order.empty() ? p : step.order[p]].phase = Phase::kBackward;
    StepOptions options = with(least_budget(step).bytes + random() % 40);
    options.iteration_budget = 500;
    options.rates = graph::CopyRates{};
    const StepResult ours = plan_step(step, options);
    for (const char* engine : {"release", "chen", "knapsack", "monet", "vdnn", "dymem"}) {
      CAPTURE(engine);
      options.engine = engine;
      const StepResult theirs = plan_step(step, options);
      if (!theirs.schedule) {
        REQUIRE(theirs.why_not.find(engine) != std::string::npos);
        continue;
      }
      ++fit[engine];
      REQUIRE(theirs.schedule->engine == engine);
      const graph::Verdict verdict = graph::replay(step, *theirs.schedule);
      REQUIRE(verdict.violation == "");
      REQUIRE(verdict.peak <= options.budget);
      REQUIRE(verdict.ns >= theirs.ns_bound);
      REQUIRE(ours.schedule);
    }
  }
  REQUIRE(fit.size() == 6);  // each of them somewhere
}

TEST_CASE("A chain by Chen's rule fits less than what is kept whole", "[joint][baselines]") {
  const Graph step = chain(16, 100, 1000);
  StepOptions options = with(1000);
  options.engine = "release";
  REQUIRE_FALSE(plan_step(step, options).schedule);
  use_papers();
  options.engine = "chen";
  const StepResult chen = plan_step(step, options);
  REQUIRE(chen.schedule);
  REQUIRE(chen.verdict.peak <= 1000);
  REQUIRE(chen.verdict.recomputed > 0);
  options.engine = "auto";
  REQUIRE(plan_step(step, options).verdict.ns <= chen.verdict.ns);
}

TEST_CASE("An engine of others that lacks something says what", "[joint][baselines]") {
  const Graph step = chain(4, 100, 1000);
  use_papers();
  StepOptions options = with(100'000);
  options.engine = "dymem";
  REQUIRE_THROWS_WITH(plan_step(step, options), Catch::Matchers::Contains("rates of copies"));
  options.engine = "checkmate";
  REQUIRE_THROWS_WITH(plan_step(step, options),
                      Catch::Matchers::Contains("berth::use_checkmate()"));
}

TEST_CASE("What stops a search leaves what it found", "[joint]") {
  const Graph step = chain(60, 100, 1000);
  std::atomic<bool> cancel{false};
  StepOptions options = with(3000);
  options.cancel = &cancel;
  options.progress = [&](const StepProgress&) { cancel = true; };
  const StepResult result = plan_step(step, options);
  REQUIRE(result.schedule);
  REQUIRE(graph::replay(step, *result.schedule).violation == "");
  options = with(3000);
  options.engine = "best";
  REQUIRE_THROWS_AS(plan_step(step, options), Error);
}

}  // namespace berth::schedule
