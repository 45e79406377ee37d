#include "csrc/schedule/joint/time_bound.h"

#include "csrc/schedule/joint/working_set.h"
#include "csrc/schedule/order/from_graph.h"
#include "tests/catch.h"
#include "tests/support/random_graph.h"
#include "tests/support/random_schedule.h"

#include <berth/referee.h>

#include <algorithm>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <tuple>

namespace berth::schedule {
namespace {

using graph::Graph;

// Operators that read some of what is made before them; each value is a storage. Few of them may
// not run again, some have a second way that reads less and takes longer.
Graph small_graph(std::mt19937& random, std::size_t operators) {
  Graph graph;
  std::vector<graph::ValueId> values;
  const auto add = [&](graph::StorageClass kind) {
    graph.storages.push_back({1 + random() % 8, kind, trace::RoleKind::kUnknown});
    values.push_back({static_cast<graph::StorageId>(graph.storages.size() - 1),
                      kind == graph::StorageClass::kStep ? 1U : 0U});
    return values.back();
  };
  add(graph::StorageClass::kInput);
  for (std::size_t n = 0; n < operators; ++n) {
    graph::Operator op;
    op.name = "op";
    op.traits.random = random() % 8 == 0;
    graph::Alternative taken;
    taken.ns = 1 + random() % 30;
    taken.workspace = random() % 3 == 0 ? random() % 4 : 0;
    std::set<graph::ValueId> read;
    for (int k = 0; k < 2; ++k) {
      // The newest, or one from far back.
      const std::size_t far = values.size() > 3 ? random() % 3 : 0;
      read.insert(random() % 2 == 0 ? values.back() : values[far]);
    }
    for (const graph::ValueId id : read)
      taken.reads.push_back({id, 0, graph.storages[id.storage].bytes});
    const bool two = random() % 4 == 0;
    taken.writes.push_back(add(graph::StorageClass::kStep));
    if (two) taken.writes.push_back(add(graph::StorageClass::kStep));
    op.alternatives.push_back(taken);
    if (random() % 4 == 0) {
      taken.ns *= 3;
      taken.workspace = 0;
      if (taken.reads.size() > 1) taken.reads.pop_back();
      op.alternatives.push_back(taken);
    }
    graph.operators.push_back(op);
  }
  return graph;
}

// The least time within a budget over all schedules without copies: Dijkstra over what has run and
// what is on the device.
std::optional<std::uint64_t> least_time(const Graph& graph, Bytes budget) {
  using State = std::pair<std::uint32_t, std::uint32_t>;
  using Entry = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>;
  const auto bytes_of = [&](std::uint32_t held) {
    Bytes bytes = 0;
    for (std::size_t s = 0; s < graph.storages.size(); ++s)
      if ((held >> s & 1) != 0) bytes += graph.storages[s].bytes;
    return bytes;
  };
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  std::set<State> closed;
  open.emplace(0, 0, 1);
  while (!open.empty()) {
    const auto [ns, ran, held] = open.top();
    open.pop();
    if (!closed.emplace(ran, held).second) continue;
    if (ran == (1U << graph.operators.size()) - 1) return ns;
    for (std::size_t s = 0; s < graph.storages.size(); ++s)
      if ((held >> s & 1) != 0) open.emplace(ns, ran, held & ~(1U << s));
    for (std::size_t op = 0; op < graph.operators.size(); ++op) {
      const graph::Operator& one = graph.operators[op];
      if ((ran >> op & 1) != 0 && one.traits.random) continue;
      const bool earlier = std::all_of(
          graph.operators.begin(), graph.operators.begin() + static_cast<std::ptrdiff_t>(op),
          [&](const graph::Operator& other) {
            return !other.traits.random || (ran >> (&other - graph.operators.data()) & 1) != 0;
          });
      if (one.traits.random && !earlier) continue;
      for (const graph::Alternative& taken : one.alternatives) {
        std::uint32_t after = held;
        bool ready = true;
        for (const graph::Read& read : taken.reads)
          ready = ready && (held >> read.value.storage & 1) != 0;
        for (const graph::ValueId id : taken.writes) after |= 1U << id.storage;
        if (!ready || bytes_of(after) + taken.workspace > budget) continue;
        open.emplace(ns + taken.ns, ran | 1U << op, after);
      }
    }
  }
  return std::nullopt;
}

std::uint64_t once(const Graph& graph) {
  std::uint64_t ns = 0;
  for (const graph::Operator& op : graph.operators)
    ns += std::ranges::min(op.alternatives, {}, &graph::Alternative::ns).ns;
  return ns;
}

}  // namespace

TEST_CASE("No schedule in any order is faster than the bound", "[joint][bound]") {
  std::mt19937 random(1);
  int raised = 0, tight = 0;
  for (int k = 0; k < 250; ++k) {
    CAPTURE(k);
    const Graph graph = small_graph(random, 3 + random() % 4);
    REQUIRE(graph::violation(graph) == "");
    const std::vector<Node> order = order_problem(graph).first_order();
    const Bytes least = least_budget(graph).bytes;
    for (Bytes budget = least; budget < least + 6; ++budget) {
      const std::uint64_t bound =
          time_bound(graph, order, {.budget = budget, .rates = {}, .places = 8});
      REQUIRE(bound >= once(graph));
      const std::optional<std::uint64_t> found = least_time(graph, budget);
      if (!found) continue;
      CAPTURE(budget, once(graph), bound, *found);
      REQUIRE(bound <= *found);
      raised += bound > once(graph) ? 1 : 0;
      tight += *found > once(graph) && bound == *found ? 1 : 0;
    }
  }
  CAPTURE(raised, tight);
  REQUIRE(raised > 20);
  REQUIRE(tight > 5);
}

TEST_CASE("Nor is one with copies", "[joint][bound]") {
  const auto seed = GENERATE(range(1U, 7U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  int judged = 0;
  for (int k = 0; k < 200; ++k) {
    CAPTURE(k);
    const Graph graph = test::random_graph(random, 1 + random() % 10);
    const graph::CopyRates rates{100'000'000 + random() % 900'000'000,
                                 100'000'000 + random() % 900'000'000};
    const auto schedule = test::RandomSchedule(random, graph, k % 2 == 0).make(false);
    if (!schedule) continue;
    const graph::Verdict verdict = graph::replay(graph, *schedule, rates);
    REQUIRE(verdict.violation == "");
    ++judged;
    TimeBoundOptions options{.budget = verdict.peak, .rates = rates, .places = 4};
    if (k % 2 == 1) options.rates.reset();
    const std::uint64_t bound = time_bound(graph, order_problem(graph).first_order(), options);
    CAPTURE(once(graph), verdict.offloaded_bytes, verdict.recomputed);
    REQUIRE(bound <= verdict.ns);
  }
  REQUIRE(judged > 50);
}

TEST_CASE("What only the host has room for is copied out before and back after", "[joint][bound]") {
  // Eight bytes that cannot be made again are read at both ends; twelve are wanted in between.
  Graph graph;
  for (const Bytes bytes : {8, 12, 1})
    graph.storages.push_back({bytes, graph::StorageClass::kStep, trace::RoleKind::kUnknown});
  const auto add = [&](std::vector<graph::StorageId> reads, graph::StorageId made) {
    graph::Operator op;
    op.name = "op";
    op.traits.random = made == 0;
    graph::Alternative taken;
    taken.ns = 1;
    for (const graph::StorageId s : reads)
      taken.reads.push_back({{s, 1}, 0, graph.storages[s].bytes});
    taken.writes = {{made, 1}};
    op.alternatives = {taken};
    graph.operators.push_back(op);
  };
  add({}, 0);
  add({}, 1);
  graph.control = {{0, 1}};
  graph.storages.push_back({1, graph::StorageClass::kStep, trace::RoleKind::kUnknown});
  add({1}, 2);
  add({2, 0}, 3);
  const std::vector<Node> order = {0, 1, 2, 3};
  TimeBoundOptions options{.budget = 14, .rates = graph::CopyRates{100'000'000, 100'000'000}};
  const std::uint64_t bound = time_bound(graph, order, options);
  CHECK(bound > 110);  // 7 of 8 bytes, 10 ns each way
  CHECK(bound <= 160);
  options.budget = 21;
  CHECK(time_bound(graph, order, options) == 4);
}

}  // namespace berth::schedule
