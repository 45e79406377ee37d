// Orders by OLLA's integer program, which shares nothing with the other engines: it judges them.
#include "csrc/place/oracle/integer_program.h"
#include "csrc/schedule/order/olla_engine.h"
#include "csrc/schedule/order/order.h"
#include "tests/catch.h"
#include "tests/schedule/random_problem.h"

#include <berth/error.h>
#include <berth/schedule_ilp.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <random>

using namespace berth;
using namespace berth::schedule;
using Catch::Matchers::Contains;

namespace {

// Whether the tests of this file can run: their one answer elsewhere is the error.
bool no_solver() {
  if (!place::unavailable_solver()) return false;
  WARN("skipped: " << *place::unavailable_solver());  // CTest counts it by this word
  return true;
}

OrderOptions by(std::string engine) {
  use_olla();
  OrderOptions options;
  options.engine = std::move(engine);
  options.time_limit_seconds = std::numeric_limits<double>::infinity();
  return options;
}

// The least peak of all orders, by the least way to each set of operators that have run.
Bytes least_peak(const OrderProblem& problem) {
  constexpr Bytes kNever = std::numeric_limits<Bytes>::max();
  const auto count = static_cast<unsigned>(problem.nodes.size());
  const auto has = [](unsigned set, Node v) { return (set >> v & 1) != 0; };
  std::vector<Bytes> least(std::size_t{1} << count, kNever);
  least[0] = problem.constant;
  for (unsigned set = 0; set + 1 < least.size(); ++set) {
    if (least[set] == kNever) continue;
    for (Node v = 0; v < count; ++v) {
      const std::vector<Node>& before = problem.nodes[v].before;
      if (has(set, v) ||
          !std::all_of(before.begin(), before.end(), [&](Node u) { return has(set, u); }))
        continue;
      Bytes live = problem.constant + problem.nodes[v].workspace;
      for (const OrderProblem::ValueOf& value : problem.values) {
        const bool made = value.maker == kNoNode || has(set, value.maker);
        const bool needed = std::any_of(value.readers.begin(), value.readers.end(),
                                        [&](Node reader) { return !has(set, reader); });
        if (value.maker == v || (made && needed)) live += value.bytes;
      }
      Bytes& next = least[set | 1U << v];
      next = std::min(next, std::max(least[set], live));
    }
  }
  return least.back();
}

// A network's step: a chain of layers with skips, and their gradients backwards, which read what
// the layers made.
OrderProblem training_step(std::mt19937& random, std::size_t layers) {
  OrderProblem problem;
  const std::size_t count = 2 * layers + 1;
  problem.nodes.resize(count);
  for (Node v = 0; v + 1 < count; ++v) {
    OrderProblem::ValueOf value{1 + random() % 50, v, {v + 1}};
    if (v < layers) {
      value.readers.push_back(static_cast<Node>(count) - 1 - v);
      if (random() % 3 == 0)
        value.readers.push_back(std::min<Node>(v + 2, static_cast<Node>(layers)));
    }
    problem.values.push_back(std::move(value));
    // The gradient of a weight, which an update of its own takes.
    if (v > layers && random() % 2 == 0) {
      const auto update = static_cast<Node>(problem.nodes.size());
      problem.nodes.emplace_back().workspace = random() % 20;
      problem.values.push_back({1 + random() % 150, v, {update}});
    }
  }
  problem.derive();
  return problem;
}

void check_legal(const OrderProblem& problem, const OrderResult& result) {
  REQUIRE(problem.violation(result.order).empty());
  REQUIRE(result.peak == peak_of(problem, result.order));
  REQUIRE(result.bound <= result.peak);
  REQUIRE(result.proven_optimal == (result.bound == result.peak));
}

std::string error_of(const OrderProblem& problem, const OrderOptions& options) {
  try {
    (void)plan_order(problem, options);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kUsage);
    return error.what();
  }
  return "planned";
}

}  // namespace

TEST_CASE("Without the solver the engine olla says what is missing", "[schedule][olla]") {
  if (!place::unavailable_solver()) return;
  std::mt19937 random(1);
  CHECK_THAT(error_of(test::random_order_problem(random, 5), by("olla")),
             Contains("HiGHS") && Contains("cmake/setup"));
}

TEST_CASE("OLLA's program is at the least of all orders", "[schedule][olla][oracle]") {
  if (no_solver()) return;
  for (unsigned seed = 1; seed <= 80; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const OrderProblem problem = test::random_order_problem(
        random, 2 + random() % 8, 0.1 + 0.1 * static_cast<double>(random() % 5));
    const OrderResult result = plan_order(problem, by("olla"));
    check_legal(problem, result);
    REQUIRE(result.peak == least_peak(problem));
    REQUIRE(result.proven_optimal);
  }
}

TEST_CASE("OLLA's program and exact search agree on steps of training",
          "[schedule][olla][oracle]") {
  if (no_solver()) return;
  int better = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const OrderProblem problem = training_step(random, 4 + random() % 5);
    REQUIRE(problem.nodes.size() <= 25);
    const OrderResult searched = plan_order(problem, by("auto")),
                      solved = plan_order(problem, by("olla"));
    check_legal(problem, solved);
    REQUIRE(searched.proven_optimal);
    REQUIRE(solved.proven_optimal);
    REQUIRE(solved.peak == searched.peak);
    better += solved.peak < solved.given_peak ? 1 : 0;
  }
  CHECK(better >= 10);
}

TEST_CASE("However far OLLA's program comes, its bound is below what is proven and its order above",
          "[schedule][olla]") {
  if (no_solver()) return;
  for (unsigned seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const OrderProblem problem = test::random_order_problem(random, 15 + random() % 11, 0.15);
    OrderOptions options = by("olla");
    options.time_limit_seconds = 0.3;
    const OrderResult solved = plan_order(problem, options),
                      searched = plan_order(problem, by("auto"));
    check_legal(problem, solved);
    REQUIRE(searched.proven_optimal);
    REQUIRE(solved.bound <= searched.peak);
    REQUIRE(solved.peak >= searched.peak);
    REQUIRE(solved.bound > 0);
  }
}

TEST_CASE("Sizes that no double can tell apart are bounded all the same", "[schedule][olla]") {
  if (no_solver()) return;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    OrderProblem problem = test::random_order_problem(random, 7, 0.3);
    for (OrderProblem::ValueOf& value : problem.values)
      value.bytes = (value.bytes << 40) + random() % 1000;
    problem.derive();
    const OrderResult result = plan_order(problem, by("olla"));
    check_legal(problem, result);
    const Bytes least = least_peak(problem);
    REQUIRE(result.peak >= least);
    REQUIRE(result.bound <= least);
    // Rounding loses at most a unit, a 2^20th of all sizes, for each value.
    REQUIRE(result.peak - result.bound <= (result.peak >> 14) + 1);
  }
}

TEST_CASE("OLLA's program stops when it is told to", "[schedule][olla]") {
  if (no_solver()) return;
  std::mt19937 random(3);
  const OrderProblem problem = test::random_order_problem(random, 40, 0.2);
  std::atomic<bool> cancel{true};
  OrderOptions options = by("olla");
  SECTION("by the caller") { options.cancel = &cancel; }
  SECTION("by time") { options.time_limit_seconds = 0.05; }
  check_legal(problem, plan_order(problem, options));
}

TEST_CASE("OLLA's program begins with the given order", "[schedule][olla]") {
  if (no_solver()) return;
  std::mt19937 random(4);
  const OrderProblem problem = test::random_order_problem(random, 30, 0.2);
  std::atomic<bool> cancel{true};
  OrderOptions options = by("auto");
  options.given = plan_order(problem, options).order;
  options.engine = "olla";
  options.cancel = &cancel;
  REQUIRE(plan_order(problem, options).peak == peak_of(problem, options.given));
}

TEST_CASE("What is too large for OLLA's program is refused with the limit", "[schedule][olla]") {
  if (no_solver()) return;
  std::mt19937 random(5);
  CHECK(error_of(test::random_order_problem(random, OllaEngine::kMaxNodes + 1), by("olla")) ==
        "the engine olla takes at most 60 operators, not 61");
  OrderProblem problem;
  problem.nodes.resize(50);
  for (Node v = 1; v < 50; ++v)
    for (Node u = 0; u < v; ++u) problem.values.push_back({1, u, {v}});
  problem.derive();
  CHECK(error_of(problem, by("olla")) ==
        "the engine olla takes at most 1000 values that differ in maker or readers, not 1225");
}
