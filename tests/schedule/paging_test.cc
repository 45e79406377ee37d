#include "csrc/schedule/offload/paging.h"

#include "csrc/graph/schedule.h"
#include "csrc/schedule/joint/working_set.h"
#include "tests/catch.h"
#include "tests/support/random_graph.h"

#include <numeric>
#include <random>

namespace berth::schedule::offload {
namespace {

using graph::Graph;
using graph::Schedule;
using graph::StorageClass;
using graph::Verdict;

// Operators of 1000 ns, one after the other, each of which reads these residents of 100 bytes.
Graph reading(std::uint32_t residents, const std::vector<std::vector<std::uint32_t>>& reads) {
  Graph graph;
  for (std::uint32_t n = 0; n < residents; ++n)
    graph.storages.push_back({100, StorageClass::kResident, trace::RoleKind::kUnknown});
  std::uint32_t before = 0;
  for (const std::vector<std::uint32_t>& read : reads) {
    graph::Operator op;
    op.name = "op";
    graph::Alternative way;
    way.ns = 1000;
    for (const std::uint32_t one : read) way.reads.push_back({{one, 0}, 0, 100});
    if (before != 0) way.reads.push_back({{before, 1}, 0, 10});
    before = static_cast<std::uint32_t>(graph.storages.size());
    graph.storages.push_back({10});
    way.writes = {{before, 1}};
    op.alternatives = {std::move(way)};
    graph.operators.push_back(std::move(op));
  }
  return graph;
}

Schedule in_order(const Graph& graph) {
  std::vector<graph::OperatorId> order(graph.operators.size());
  std::iota(order.begin(), order.end(), 0U);
  return graph::schedule_of_order(graph, order);
}

std::vector<bool> all_of(const Graph& graph) {
  return std::vector<bool>(graph.storages.size(), true);
}

std::vector<bool> residents_of(const Graph& graph) {
  std::vector<bool> residents;
  for (const graph::Storage& one : graph.storages)
    residents.push_back(one.kind == StorageClass::kResident);
  return residents;
}

// 100 bytes in 100 ns.
constexpr graph::CopyRates kFast{1'000'000'000, 1'000'000'000};

}  // namespace

TEST_CASE("Residents that are used in turn come early, and cost no time", "[schedule][residents]") {
  // 8 residents in room for 4, each read once forward and once backward.
  std::vector<std::vector<std::uint32_t>> reads;
  for (std::uint32_t n = 0; n < 8; ++n) reads.push_back({n});
  for (std::uint32_t n = 8; n-- > 0;) reads.push_back({n});
  const Graph graph = reading(8, reads);
  const Schedule alone = in_order(graph);
  CHECK(graph::replay(graph, alone, kFast).peak == 820);
  const auto found = best_paging(graph, alone, all_of(graph), 420, kFast);
  REQUIRE(found);
  const Verdict verdict = graph::replay(graph, *found, kFast);
  CHECK(verdict.violation == "");
  CHECK(verdict.peak <= 420);
  CHECK(verdict.ns <= 16'000 + 100);  // what the first operator takes cannot come before it
  CHECK(verdict.offloaded_bytes == 0);
  // Two more than the least, four a way, to have one on its way.
  CHECK(verdict.reloaded_bytes <= 1'000);
}

TEST_CASE("What is used last leaves", "[schedule][residents]") {
  // Room for two of three; 0 is used all the time.
  const Graph graph = reading(3, {{0}, {1}, {0}, {2}, {0}, {1}, {0}, {2}});
  const Schedule alone = in_order(graph);
  const auto found = with_paging(graph, alone, all_of(graph), 220, 0, 0, kFast);
  REQUIRE(found);
  const Verdict verdict = graph::replay(graph, *found, kFast);
  CHECK(verdict.violation == "");
  CHECK(verdict.peak <= 220);
  CHECK(verdict.resident == 100);  // the one that stays
  CHECK(verdict.reloaded_bytes == 400);
}

TEST_CASE("What may not move stays, and what does not fit is said", "[schedule][residents]") {
  const Graph graph = reading(3, {{0}, {1}, {2}, {1, 2}});
  const Schedule alone = in_order(graph);
  std::vector<bool> movable = all_of(graph);
  movable[0] = false;
  const auto found = best_paging(graph, alone, movable, 320, kFast);
  REQUIRE(found);
  CHECK(graph::replay(graph, *found, kFast).resident >= 100);
  // The last operator takes two, beside the one that stays.
  CHECK_FALSE(best_paging(graph, alone, movable, 310, kFast));
  CHECK(best_paging(graph, alone, all_of(graph), 220, kFast));
  CHECK_FALSE(best_paging(graph, alone, all_of(graph), 219, kFast));
}

// A random graph, its schedule without copies, rates, and what the schedule takes.
struct Case {
  Graph graph;
  Schedule alone;
  graph::CopyRates rates;
  Verdict before;
};

Case random_case(std::mt19937& random) {
  Case one;
  one.graph = test::random_graph(random, 2 + random() % 12);
  one.alone = one.graph.order.empty() ? in_order(one.graph)
                                      : graph::schedule_of_order(one.graph, one.graph.order);
  one.rates = {1 + random() % 4'000'000'000, 1 + random() % 4'000'000'000};
  one.before = graph::replay(one.graph, one.alone, one.rates);
  return one;
}

TEST_CASE("Schedules of random graphs fit with their residents away", "[schedule][residents]") {
  std::mt19937 random(7);
  int fitted = 0;
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const auto [graph, alone, rates, before] = random_case(random);
    REQUIRE(before.violation == "");
    const Bytes budget = before.peak - before.resident * (random() % 5) / 4;
    const auto found = best_paging(graph, alone, residents_of(graph), budget, rates);
    if (!found) continue;
    ++fitted;
    const Verdict verdict = graph::replay(graph, *found, rates);
    REQUIRE(verdict.violation == "");
    CHECK(verdict.peak <= budget);
    CHECK(verdict.ns >= before.ns);
    if (budget == before.peak) CHECK(verdict.ns == before.ns);
    const Schedule back = without_resident_offloads(graph, *found);
    CHECK(back.steps == alone.steps);
  }
  CHECK(fitted > 100);
}

// Each operator makes 100 bytes, and reads some of those made before.
Graph making(const std::vector<std::vector<std::uint32_t>>& reads) {
  Graph graph;
  for (const std::vector<std::uint32_t>& read : reads) {
    graph::Operator op;
    op.name = "op";
    graph::Alternative way;
    way.ns = 1000;
    for (const std::uint32_t one : read) way.reads.push_back({{one, 1}, 0, 100});
    way.writes = {{static_cast<std::uint32_t>(graph.storages.size()), 1}};
    graph.storages.push_back({100});
    op.alternatives = {std::move(way)};
    graph.operators.push_back(std::move(op));
  }
  return graph;
}

TEST_CASE("Values that are used last leave, each as often as it has to", "[schedule][paging]") {
  // 0 is used all along, 1 and 2 late: room for what one operator takes and makes, and no more.
  const Graph graph = making({{}, {0}, {0}, {0, 2}, {0, 1}, {2, 3}, {1, 4, 5}, {0, 6}});
  const Schedule alone = in_order(graph);
  CHECK(graph::replay(graph, alone, kFast).peak == 600);
  CHECK_FALSE(best_paging(graph, alone, residents_of(graph), 599, kFast));
  for (const Bytes budget : {500, 400}) {
    CAPTURE(budget);
    const auto found = best_paging(graph, alone, made_in(graph), budget, kFast);
    REQUIRE(found);
    const Verdict verdict = graph::replay(graph, *found, kFast);
    CHECK(verdict.violation == "");
    CHECK(verdict.peak <= budget);
    CHECK(verdict.recomputed == 0);
    CHECK(verdict.offloaded_bytes == (budget == 500 ? 100 : 300));
  }
  CHECK_FALSE(best_paging(graph, alone, made_in(graph), 399, kFast));
}

TEST_CASE("What the step leaves behind stays once nobody uses it", "[schedule][paging]") {
  // 0 is read once more at the end; schedules without its drop leave it to the next step.
  const Graph graph = making({{}, {}, {1}, {2}, {0}});
  Schedule alone = in_order(graph);
  std::erase_if(alone.steps, [](const graph::ScheduleStep& step) {
    return step.kind == graph::ScheduleStep::Kind::kDrop && step.buffer == 0;
  });
  const auto found = best_paging(graph, alone, made_in(graph), 200, kFast);
  REQUIRE(found);
  const Verdict verdict = graph::replay(graph, *found, kFast);
  CHECK(verdict.violation == "");
  CHECK(verdict.reloaded_bytes == 100);
  CHECK(verdict.live.back() == 100);
}

TEST_CASE("Random graphs with all that moves fit a budget", "[schedule][paging]") {
  std::mt19937 random(11);
  int fitted = 0;
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const auto [graph, alone, rates, before] = random_case(random);
    const Bytes least = least_budget(graph).bytes;
    const Bytes budget = least + (before.peak - least) * (random() % 4) / 4;
    const auto found = best_paging(graph, alone, all_of(graph), budget, rates);
    if (!found) continue;
    ++fitted;
    const Verdict verdict = graph::replay(graph, *found, rates);
    REQUIRE(verdict.violation == "");
    CHECK(verdict.peak <= budget);
    CHECK(verdict.recomputed == 0);
  }
  CHECK(fitted > 250);  // inputs stay
}

}  // namespace berth::schedule::offload
