#include "csrc/schedule/order/order.h"

#include "csrc/schedule/order/area.h"
#include "csrc/schedule/order/greedy.h"
#include "csrc/schedule/order/min_cut.h"
#include "csrc/schedule/order/search.h"
#include "tests/catch.h"
#include "tests/schedule/random_problem.h"

#include <berth/error.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

using namespace berth;
using namespace berth::schedule;

namespace {

// Looks at every order.
Bytes least_peak(const OrderProblem& problem) {
  Order order(problem.nodes.size());
  std::iota(order.begin(), order.end(), Node{0});
  Bytes least = std::numeric_limits<Bytes>::max();
  do {
    if (problem.violation(order).empty()) least = std::min(least, peak_of(problem, order));
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

// What is alive at each step, by the definition and not by counting.
std::vector<Bytes> live_by_definition(const OrderProblem& problem, const Order& order) {
  std::vector<std::size_t> at(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) at[order[k]] = k;
  std::vector<Bytes> live;
  for (std::size_t k = 0; k < order.size(); ++k) {
    Bytes bytes = problem.constant + problem.nodes[order[k]].workspace;
    for (const OrderProblem::ValueOf& value : problem.values) {
      if (value.maker == kNoNode && value.readers.empty()) continue;
      const std::size_t birth = value.maker == kNoNode ? 0 : at[value.maker];
      std::size_t end = birth;
      for (const Node reader : value.readers) end = std::max(end, at[reader]);
      if (birth <= k && k <= end) bytes += value.bytes;
    }
    live.push_back(bytes);
  }
  return live;
}

OrderOptions by_budget(std::uint64_t iterations, std::string engine = "auto") {
  OrderOptions options;
  options.engine = std::move(engine);
  options.time_limit_seconds = std::numeric_limits<double>::infinity();
  options.iteration_budget = iterations;
  return options;
}

}  // namespace

TEST_CASE("What an order has alive is what its values say", "[schedule][order]") {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const OrderProblem problem = test::random_order_problem(random, 1 + random() % 20);
    for (const NamedOrder& named : constructive_orders(problem)) {
      INFO(named.name);
      REQUIRE(problem.violation(named.order).empty());
      REQUIRE(live_bytes(problem, named.order) == live_by_definition(problem, named.order));
    }
  }
}

TEST_CASE("Bounds are below and searches at the least of all orders", "[schedule][order][oracle]") {
  std::mt19937 random(2);
  int tight = 0, descended = 0;
  constexpr int kRounds = 600;
  for (int round = 0; round < kRounds; ++round) {
    const OrderProblem problem = test::random_order_problem(
        random, 2 + random() % 6, 0.1 + 0.1 * static_cast<double>(random() % 6));
    const Bytes least = least_peak(problem);
    MinCut cuts(problem);
    Order order = problem.first_order();
    const OrderBound bound = min_cut_bound(cuts, problem, order);
    REQUIRE(bound.bytes <= least);
    tight += bound.bytes == least;
    for (Node v = 0; v < problem.nodes.size(); ++v) REQUIRE(cuts.live(v) <= bound.bytes);

    WorkingOrder working(problem, order, 0);
    (void)descend(cuts, working, {.moves = 1000});
    REQUIRE(problem.violation(working.order()).empty());
    REQUIRE(working.peak() == peak_of(problem, working.order()));
    REQUIRE(working.peak() >= least);
    REQUIRE(working.peak() <= peak_of(problem, order));
    descended += working.peak() == least;

    const ExactAnswer found = search_exactly(problem, least, 1 << 20, {});
    REQUIRE(found.kind == ExactAnswer::Kind::kFound);
    REQUIRE(problem.violation(found.order).empty());
    REQUIRE(peak_of(problem, found.order) == least);
    if (least > 0)
      REQUIRE(search_exactly(problem, least - 1, 1 << 20, {}).kind == ExactAnswer::Kind::kRefuted);

    const OrderResult planned = plan_order(problem, by_budget(10'000));
    REQUIRE(planned.peak == least);
    REQUIRE(planned.bound == least);
    REQUIRE(planned.proven_optimal);
  }
  // What the cuts gain: without them the bound were what a node makes and its ancestors leave.
  CHECK(tight > kRounds * 8 / 10);
  CHECK(descended > kRounds * 7 / 10);
}

TEST_CASE("A window is priced as a whole order is", "[schedule][order]") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const OrderProblem problem = test::random_order_problem(random, 5 + random() % 40, 0.1);
    WorkingOrder working(problem, problem.first_order(), 0);
    working.set_target(working.peak() * (random() % 100) / 100);
    for (int move = 0; move < 20; ++move) {
      const auto size = static_cast<std::uint32_t>(working.order().size());
      const std::uint32_t first = static_cast<std::uint32_t>(random()) % size;
      const std::uint32_t count = 1 + static_cast<std::uint32_t>(random()) % (size - first);
      std::vector<Node> window(working.order().begin() + first,
                               working.order().begin() + first + count);
      std::shuffle(window.begin(), window.end(), random);
      Order whole = working.order();
      std::copy(window.begin(), window.end(), whole.begin() + first);
      if (!problem.violation(whole).empty()) continue;
      WorkingOrder other(problem, whole, working.target());
      const double before = working.area();
      REQUIRE(working.price(first, window) == Approx(other.area() - before).margin(1e-6));
      REQUIRE(working.area() == before);
      if (random() % 2 == 0) continue;
      working.accept(first, window);
      REQUIRE(working.order() == whole);
      REQUIRE(working.area() == Approx(other.area()).margin(1e-6));
      for (std::uint32_t k = 0; k < size; ++k) REQUIRE(working.live(k) == other.live(k));
    }
  }
}

TEST_CASE("Annealing never gives back a worse order, and finds better ones", "[schedule][order]") {
  std::mt19937 random(4);
  int better = 0;
  for (int round = 0; round < 30; ++round) {
    const OrderProblem problem = test::random_order_problem(random, 60, 0.05);
    MinCut cuts(problem);
    std::mt19937_64 draws(5);
    std::uint64_t moves = 0;
    const Order start = problem.first_order();
    const Order found = anneal(problem, cuts, start, 0, draws, {.moves = 4000}, &moves);
    REQUIRE(problem.violation(found).empty());
    REQUIRE(peak_of(problem, found) <= peak_of(problem, start));
    better += peak_of(problem, found) < peak_of(problem, start);
    REQUIRE(moves == 4000);
  }
  CHECK(better >= 25);
}

TEST_CASE("The result is never worse than what was given or made in one pass",
          "[schedule][order]") {
  std::mt19937 random(6);
  for (int round = 0; round < 40; ++round) {
    const OrderProblem problem = test::random_order_problem(random, 30 + random() % 100, 0.04);
    OrderOptions options = by_budget(2000);
    Bytes best = std::numeric_limits<Bytes>::max();
    for (const NamedOrder& named : constructive_orders(problem)) {
      best = std::min(best, peak_of(problem, named.order));
      options.given = named.order;
    }
    const OrderResult result = plan_order(problem, options);
    REQUIRE(problem.violation(result.order).empty());
    REQUIRE(result.peak == peak_of(problem, result.order));
    REQUIRE(result.peak <= best);
    REQUIRE(result.bound <= result.peak);
    REQUIRE(result.given_peak == peak_of(problem, options.given));
    REQUIRE(result.proven_optimal == (result.peak == result.bound));
    const OrderResult again = plan_order(problem, options);
    REQUIRE(again.order == result.order);
    REQUIRE(again.moves == result.moves);
    for (const std::string& engine : order_engines()) {
      if (engine == "olla") continue;  // a library of its own: olla_test.cc
      const OrderResult one = plan_order(problem, by_budget(500, engine));
      REQUIRE(problem.violation(one.order).empty());
      REQUIRE(one.bound <= one.peak);
    }
  }
}

TEST_CASE("A control edge never lowers the bound, nor does a larger value", "[schedule][order]") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    OrderProblem problem = test::random_order_problem(random, 12, 0.15);
    const Order order = problem.first_order();
    MinCut cuts(problem);
    const Bytes before = min_cut_bound(cuts, problem, order).bytes;
    if (random() % 2 == 0) {
      const std::size_t first = random() % (order.size() - 1);
      problem.control.emplace_back(order[first],
                                   order[first + 1 + random() % (order.size() - first - 1)]);
    } else if (!problem.values.empty()) {
      problem.values[random() % problem.values.size()].bytes += 5;
    }
    problem.derive();
    MinCut changed(problem);
    REQUIRE(min_cut_bound(changed, problem, order).bytes >= before);
  }
}

TEST_CASE("A cancelled search has an order, at any call of progress", "[schedule][order]") {
  std::mt19937 random(8);
  const OrderProblem problem = test::random_order_problem(random, 300, 0.02);
  for (int calls = 1; calls < 6; ++calls) {
    std::atomic<bool> cancel{false};
    int seen = 0;
    OrderOptions options;
    options.time_limit_seconds = 20;
    options.cancel = &cancel;
    options.progress = [&](const OrderProgress& progress) {
      CHECK(progress.bound <= progress.peak);
      if (++seen >= calls) cancel = true;
    };
    const OrderResult result = plan_order(problem, options);
    REQUIRE(problem.violation(result.order).empty());
    CHECK(result.seconds < 10);
  }
}

TEST_CASE("What is no problem is refused by name", "[schedule][order]") {
  const auto text_of = [](OrderProblem problem) -> std::string {
    try {
      problem.derive();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  OrderProblem problem;
  problem.nodes.resize(2);
  CHECK(text_of(problem) == "accepted");
  problem.values.push_back({8, 0, {7}});
  CHECK(text_of(problem) == "value 0 names node 7, there are 2");
  problem.values[0].readers = {1, 1};
  CHECK(text_of(problem) == "accepted");
  problem.control.emplace_back(1, 0);
  CHECK(text_of(problem) == "node 0 lies on a cycle, or behind one: no order is possible");
  problem.control[0] = {0, 2};
  CHECK(text_of(problem) == "a control edge names node 2, there are 2");
  problem.control.clear();
  problem.values[0].readers = {0};
  CHECK(text_of(problem) == "node 0 reads value 0, which it makes");
  problem.values[0] = {kMaxBytes, 0, {}};
  problem.constant = 1;
  CHECK_THAT(text_of(problem), Catch::Matchers::Contains("all sizes together are above"));
  problem.values.clear();
  problem.derive();
  CHECK(problem.violation(Order{0}) == "the order has 1 nodes, the graph 2");
  CHECK(problem.violation(Order{0, 0}) == "node 0 is there twice");
  CHECK(problem.violation(Order{0, 5}) == "there is no node 5");
  OrderOptions options;
  options.engine = "best";
  CHECK_THROWS_AS(plan_order(problem, options), Error);
  options.engine = "olla";  // this program does not link it
  CHECK_THROWS_WITH(plan_order(problem, options),
                    Catch::Matchers::Contains("berth::schedule_ilp") &&
                        Catch::Matchers::Contains("berth::use_olla()"));
  options.engine = "auto";
  options.given = {0};
  CHECK_THROWS_AS(plan_order(problem, options), Error);
  OrderProblem nothing;
  nothing.constant = 5;
  nothing.derive();
  CHECK(plan_order(nothing).peak == 5);
}

TEST_CASE("Operators of another project are ordered as they are given", "[schedule][order]") {
  // A large value is used up before the next is made.
  StepOperators operators;
  operators.workspaces = {0, 0, 5, 0, 0};
  operators.values = {{.bytes = 90, .maker = 0, .readers = {2}},
                      {.bytes = 90, .maker = 1, .readers = {3, 3}},
                      {.bytes = 10, .maker = 2, .readers = {4}},
                      {.bytes = 10, .maker = 3, .readers = {4}},
                      {.bytes = 3, .readers = {4}}};
  operators.resident = 1000;
  const OrderResult result = order_operators(operators);
  CHECK(result.given_peak == 1000 + 90 + 90 + 10 + 5 + 3);
  // What needs the workspace runs first, so that it does not come upon what the other leaves.
  CHECK(result.peak == 1000 + 90 + 10 + 10 + 3);
  CHECK(result.order == std::vector<std::uint32_t>{0, 2, 1, 3, 4});
  CHECK(result.proven_optimal);
  operators.control = {{3, 2}};
  const OrderResult controlled = order_operators(operators);
  CHECK(controlled.peak == 1000 + 90 + 10 + 10 + 5 + 3);
  OrderOptions options;
  options.engine = "given";
  options.given = {0, 1, 3, 2, 4};
  CHECK(order_operators(operators, options).peak == 1000 + 90 + 90 + 10 + 3);
  operators.values[0].maker = 9;
  try {
    (void)order_operators(operators);
    FAIL("ordered");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kUsage);
    CHECK(std::string(error.what()) == "value 0 names node 9, there are 5");
  }
}
