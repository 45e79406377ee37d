#include "csrc/schedule/joint/passes.h"
#include "csrc/schedule/joint/working_set.h"
#include "tests/catch.h"

#include <berth/referee.h>
#include <berth/schedule.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

namespace berth::schedule {
namespace {

using graph::Graph;
using graph::StorageClass;
using graph::StorageId;

StorageId add_storage(Graph& graph, Bytes bytes, StorageClass kind) {
  graph.storages.push_back({bytes, kind, trace::RoleKind::kUnknown});
  return static_cast<StorageId>(graph.storages.size() - 1);
}

// An operator of 1000 ns that makes 100 bytes. Residents are read as they were.
StorageId add_operator(Graph& graph, graph::Phase phase, const std::vector<StorageId>& reads) {
  graph::Operator op;
  op.name = phase == graph::Phase::kForward ? "forward" : "backward";
  op.phase = phase;
  graph::Alternative taken;
  taken.ns = 1000;
  for (const StorageId s : reads)
    taken.reads.push_back(
        {{s, graph.storages[s].kind == StorageClass::kStep ? 1U : 0U}, 0, graph.storages[s].bytes});
  const StorageId made = add_storage(graph, 100, StorageClass::kStep);
  taken.writes = {{made, 1}};
  op.alternatives = {taken};
  graph.operators.push_back(op);
  return made;
}

// Ten layers and their gradients; each layer has a weight of so many bytes, and one more.
Graph layers(Bytes weight) {
  Graph graph;
  std::vector<StorageId> weights, made;
  for (int k = 0; weight > 0 && k < 10; ++k)
    weights.push_back(add_storage(graph, weight, StorageClass::kResident));
  const auto with_weight = [&](std::vector<StorageId> reads, std::size_t layer) {
    if (weight > 0) reads.push_back(weights[layer]);
    return reads;
  };
  for (std::size_t k = 0; k < 10; ++k)
    made.push_back(add_operator(
        graph, graph::Phase::kForward,
        with_weight(k == 0 ? std::vector<StorageId>{} : std::vector<StorageId>{made.back()}, k)));
  StorageId gradient = made.back();
  for (std::size_t k = 10; k-- > 0;)
    gradient =
        add_operator(graph, graph::Phase::kBackward,
                     with_weight(gradient == made[k] ? std::vector<StorageId>{gradient}
                                                     : std::vector<StorageId>{gradient, made[k]},
                                 k));
  return graph;
}

// So many passes of the same layers, whose gradients add up in a storage each; the last operator
// takes them.
Graph accumulated(std::size_t passes) {
  Graph graph;
  std::vector<StorageId> sums;
  for (int k = 0; k < 10; ++k) sums.push_back(add_storage(graph, 20, StorageClass::kStep));
  std::vector<std::uint32_t> versions(10, 0);
  for (std::size_t pass = 0; pass < passes; ++pass) {
    std::vector<StorageId> made = {add_operator(graph, graph::Phase::kForward,
                                                {add_storage(graph, 100, StorageClass::kInput)})};
    for (int k = 1; k < 10; ++k)
      made.push_back(add_operator(graph, graph::Phase::kForward, {made.back()}));
    StorageId gradient = made.back();
    for (std::size_t k = 10; k-- > 0;) {
      gradient = add_operator(graph, graph::Phase::kBackward,
                              gradient == made[k] ? std::vector<StorageId>{gradient}
                                                  : std::vector<StorageId>{gradient, made[k]});
      graph::Alternative& taken = graph.operators.back().alternatives.front();
      if (versions[k] > 0) taken.reads.push_back({{sums[k], versions[k]}, 0, 20});
      taken.writes.push_back({sums[k], ++versions[k]});
    }
  }
  graph::Operator end;
  end.name = "update";
  end.phase = graph::Phase::kOptimizer;
  end.traits.changes_state = true;
  end.alternatives.emplace_back();
  for (std::size_t k = 0; k < 10; ++k)
    end.alternatives.front().reads.push_back({{sums[k], versions[k]}, 0, 20});
  graph.operators.push_back(std::move(end));
  return graph;
}

StepOptions counted(Bytes budget = 0) {
  StepOptions options;
  options.budget = budget;
  options.iteration_budget = 5'000;
  options.time_limit_seconds = 60;
  return options;
}

}  // namespace

TEST_CASE("Less memory takes more time, and each share of time gets the least found for it",
          "[schedule][policy]") {
  const Graph step = layers(0);
  LeastMemory least(step, counted());
  const StepResult* const free = least.find(20'000);
  REQUIRE(free != nullptr);
  const Bytes base = free->verdict.peak;
  CHECK(free->verdict.ns == 20'000);
  CHECK(base == free->base_peak);
  const StepResult* const more = least.find(24'000);
  REQUIRE(more->schedule);
  CHECK(more->verdict.ns <= 24'000);
  CHECK(more->verdict.peak < base);
  const Bytes some = more->verdict.peak;
  const StepResult* const any = least.find();
  CHECK(any->verdict.peak < some);
  CHECK(any->verdict.peak >= any->least_budget);
  CHECK(graph::replay(step, *any->schedule).violation == "");
  // No answer is worse for what was asked since.
  CHECK(least.find(20'000)->verdict.peak <= base);
  CHECK(least.find(24'000)->verdict.peak <= some);
}

TEST_CASE("Where no schedule takes so little time, the fastest one is found",
          "[schedule][policy]") {
  const Graph step = layers(0);
  LeastMemory least(step, counted());
  const StepResult* const found = least.find(1);
  REQUIRE(found != nullptr);
  CHECK(found->verdict.ns == 20'000);
}

TEST_CASE("A cancelled search for the least memory ends", "[schedule][policy]") {
  const Graph step = layers(0);
  const std::atomic<bool> cancelled{true};
  StepOptions options = counted();
  options.cancel = &cancelled;
  LeastMemory least(step, options);
  const StepResult* const found = least.find();
  if (found != nullptr) CHECK(graph::replay(step, *found->schedule).violation == "");
}

TEST_CASE("A budget that no time is enough for is not searched for longer", "[schedule][policy]") {
  const Graph step = layers(0);
  const StepResult none = plan_within(step, counted(250));
  CHECK_FALSE(none.schedule);
  CHECK(none.missing_bytes == 50);
  const StepResult some = plan_within(step, counted(600));
  REQUIRE(some.schedule);
  CHECK(some.verdict.peak <= 600);
}

TEST_CASE("Where residents may spill, a step takes all of the budget but one call's share of them",
          "[schedule][policy]") {
  const Graph step = layers(500);  // 5,000 bytes of weights, and 1,200 of the step
  CHECK(most_from_outside(step) == 500);
  const Bytes budget = 1'300;
  REQUIRE_FALSE(plan_within(step, counted(budget)).schedule);
  const std::vector<bool> all(step.storages.size(), true);
  const StepResult found = plan_beside_spills(step, counted(budget), all, most_from_outside(step));
  REQUIRE(found.schedule);
  CHECK(found.verdict.resident == 5'000);
  CHECK(found.verdict.peak - found.verdict.resident <= budget - 500);
  CHECK(found.verdict.recomputed > 0);
  // With less than any schedule needs it is the least that is found.
  const StepResult little = plan_beside_spills(step, counted(550), all, most_from_outside(step));
  REQUIRE(little.schedule);
  CHECK(little.verdict.peak <= found.verdict.peak);
  CHECK_FALSE(plan_beside_spills(step, counted(budget), all, std::nullopt).schedule);
  // With rates the schedule has the copies itself, and keeps to the budget.
  StepOptions copying = counted(budget);
  copying.rates = graph::CopyRates{1'000'000'000, 1'000'000'000};
  const StepResult copied = plan_beside_spills(step, copying, all, most_from_outside(step));
  REQUIRE(copied.schedule);
  CHECK(copied.verdict.peak <= budget);
  CHECK(copied.verdict.reloaded_bytes > 0);
}

TEST_CASE("A plan may copy residents, and is faster than one that recomputes for them",
          "[schedule][policy]") {
  const Graph step = layers(500);  // 5,000 bytes of weights, and 1,200 of the step
  StepOptions options = counted(3'200);
  options.rates = graph::CopyRates{1'000'000'000, 1'000'000'000};
  const std::vector<bool> all(step.storages.size(), true);
  const StepResult found = plan_with_residents_away(step, options, all);
  REQUIRE(found.schedule);
  CHECK(found.verdict.peak <= 3'200);
  CHECK(graph::replay(step, *found.schedule, *options.rates).violation == "");
  CHECK(found.verdict.ns <= 21'000);  // 20,000 as recorded, and a first copy
  CHECK(found.schedule->peak == found.verdict.peak);
  // With nothing that may move there is none.
  const std::vector<bool> none(step.storages.size(), false);
  CHECK_FALSE(plan_with_residents_away(step, options, none).schedule);
  CHECK(plan_with_residents_away(step, options, none).why_not != "");
}

TEST_CASE("A plan keeps to the host memory that is allowed", "[schedule][policy]") {
  const Graph step = layers(0);  // 1,200 bytes as recorded, at least 300
  StepOptions options = counted(500);
  options.rates = graph::CopyRates{1'000'000'000, 1'000'000'000};
  for (const Bytes host : {Bytes{1'000}, Bytes{400}, Bytes{200}, Bytes{0}}) {
    CAPTURE(host);
    const StepResult found = plan_within_host(step, options, {}, host);
    REQUIRE(found.schedule);
    const graph::Verdict verdict = graph::replay(step, *found.schedule, *options.rates);
    CHECK(verdict.violation == "");
    CHECK(verdict.peak <= 500);
    CHECK(verdict.host_peak <= host);
  }
  // With more there it is no slower.
  CHECK(plan_within_host(step, options, {}, 1'000).verdict.ns <=
        plan_within_host(step, options, {}, 0).verdict.ns);
  // Residents leave where they may.
  const Graph heavy = layers(500);  // 5,000 bytes of weights beside that
  const std::vector<bool> all(heavy.storages.size(), true);
  options.budget = 4'000;
  const StepResult away = plan_within_host(heavy, options, all, 3'000);
  REQUIRE(away.schedule);
  CHECK(away.verdict.peak <= 4'000);
  CHECK(away.verdict.host_peak <= 3'000);
  const StepResult none = plan_within_host(heavy, options, all, 500);
  CHECK_FALSE(none.schedule);
  CHECK(none.why_not.find("with at most 500 B on the host") != std::string::npos);
}

TEST_CASE("The least memory has residents on the host where they may be", "[schedule][policy]") {
  const Graph step = layers(500);  // 5,000 bytes of weights, and 1,200 of the step
  StepOptions options = counted();
  options.rates = graph::CopyRates{1'000'000'000, 1'000'000'000};
  const std::vector<bool> all(step.storages.size(), true), none(step.storages.size(), false);
  LeastMemory on_device(step, options, none), away(step, options, all);
  const StepResult* const staying = on_device.find();
  REQUIRE(staying != nullptr);
  CHECK(staying->verdict.peak > 5'000);
  const StepResult* const left = away.find();
  REQUIRE(left != nullptr);
  CHECK(left->verdict.peak < 3'200);
  CHECK(left->verdict.peak >= least_budget(step, all).bytes);
  CHECK(graph::replay(step, *left->schedule, *options.rates).violation == "");
  // Within a share of time as well.
  const StepResult* const soon = away.find(24'000);
  REQUIRE(soon != nullptr);
  CHECK(soon->verdict.ns <= 24'000);
  CHECK(soon->verdict.peak < 5'000);
  // Without rates nothing is copied, and as many storages as there are have to be named.
  LeastMemory without(step, counted(), all);
  CHECK(without.find()->verdict.peak > 5'000);
  CHECK_THROWS(LeastMemory(step, options, std::vector<bool>(1, true)));
}

TEST_CASE("A step with one forward part is one pass, and accumulated gradients are several",
          "[schedule][policy]") {
  CHECK(passes_of(layers(0)).size() == 1);
  CHECK(passes_of(accumulated(1)).size() == 1);
  const auto passes = passes_of(accumulated(3));
  REQUIRE(passes.size() == 3);
  CHECK(passes[1] == std::pair<std::size_t, std::size_t>{20, 40});
  CHECK(passes[2] == std::pair<std::size_t, std::size_t>{40, 61});
}

TEST_CASE("Steps that accumulate gradients need little more memory than one pass of them",
          "[schedule][policy]") {
  const Graph one = accumulated(1), three = accumulated(3);
  LeastMemory least_of_one(one, counted()), least_of_three(three, counted());
  const StepResult* const alone = least_of_one.find();
  const StepResult* const together = least_of_three.find();
  REQUIRE((alone != nullptr && together != nullptr));
  CHECK(alone->verdict.recomputed > 0);
  // The batches of later passes are there from the beginning.
  CHECK(together->verdict.peak <= alone->verdict.peak + 2 * 100 + 10 * 20);
  CHECK(graph::replay(three, *together->schedule).violation == "");
  const Bytes budget = together->base_peak - (together->base_peak - together->verdict.peak) / 2;
  CHECK_FALSE(plan_whole(three, counted(budget)).schedule);  // what passes are for
  const StepResult within = plan_within(three, counted(budget));
  REQUIRE(within.schedule);
  CHECK(within.verdict.peak <= budget);
  CHECK(within.verdict.ns < together->verdict.ns);
  StepOptions copying = counted(budget);
  copying.rates = graph::CopyRates{200'000'000, 200'000'000};
  const StepResult copied = plan_within(three, copying);
  REQUIRE(copied.schedule);
  CHECK(graph::replay(three, *copied.schedule, *copying.rates).violation == "");
  CHECK(copied.verdict.ns <= within.verdict.ns);
}

TEST_CASE("Without a budget nothing runs twice, and faster alternatives come where they have room",
          "[schedule][policy]") {
  Graph step = layers(0);
  // In the first operator there is room for a workspace, in the last one of the forward part not.
  for (const std::size_t op : {std::size_t{0}, std::size_t{9}}) {
    graph::Alternative faster = step.operators[op].alternatives.front();
    faster.ns = 10;
    faster.workspace = 150;
    step.operators[op].alternatives.push_back(faster);
  }
  const auto as_written = plan_unbudgeted(step, counted(), false);
  REQUIRE(as_written);
  const graph::Verdict slow = graph::replay(step, *as_written);
  CHECK(slow.ns == 20'000);
  const auto faster = plan_unbudgeted(step, counted(), true);
  REQUIRE(faster);
  const graph::Verdict fast = graph::replay(step, *faster);
  CHECK(fast.violation == "");
  CHECK(fast.peak == slow.peak);
  CHECK(fast.ns == 20'000 - 990);
}

TEST_CASE("Engines are refused without what they need, and papers' names are synonyms",
          "[schedule][policy]") {
  CHECK(step_engine_of("berth") == "auto");
  CHECK(step_engine_of("olla") == "order");
  CHECK(step_engine_of("chen") == "chen");
  CHECK(why_not("auto", false, false).empty());
  CHECK(why_not("chen", true, false).empty());
  CHECK(why_not("chen", false, false).find("none is given") != std::string::npos);
  CHECK(why_not("offload", true, false).find("copy_rate") != std::string::npos);
  CHECK(why_not("offload", true, true).empty());
  CHECK(why_not("nobody", true, true).find("'nobody'") != std::string::npos);
}

}  // namespace berth::schedule
