#include "csrc/schedule/joint/flatten.h"

#include "csrc/schedule/order/from_graph.h"
#include "csrc/schedule/order/order.h"
#include "tests/catch.h"
#include "tests/support/random_graph.h"

#include <berth/referee.h>

#include <random>

namespace berth::schedule {

TEST_CASE("A flatter order of the same peak fits a smaller arena", "[joint][addresses]") {
  std::mt19937 random(3);
  int smaller = 0;
  for (int k = 0; k < 60; ++k) {
    CAPTURE(k);
    const graph::Graph graph = test::random_graph(random, 30);
    OrderOptions order;
    order.iteration_budget = 300;
    order.time_limit_seconds = 60;
    const OrderResult found = plan_order(order_problem(graph), order);
    AddressOptions options;
    options.iteration_budget = 100;
    options.time_limit_seconds = 60;
    graph::Schedule plain = graph::schedule_of_order(graph, found.order);
    graph::Schedule flat = plain;
    const Addresses before = place_addresses(graph, plain, options);
    options.iteration_budget = 200;  // the first placement has half of them
    const Addresses after = place_flattened(graph, flat, options);
    const graph::Verdict verdict = graph::replay(graph, flat);
    REQUIRE(verdict.violation == "");
    REQUIRE(verdict.arena == after.arena_bytes);
    REQUIRE(verdict.peak <= graph::replay(graph, plain).peak);
    REQUIRE(after.arena_bytes <= before.arena_bytes);
    smaller += after.arena_bytes < before.arena_bytes ? 1 : 0;
  }
  REQUIRE(smaller > 0);
}

}  // namespace berth::schedule
