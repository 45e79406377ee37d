// What the planners of orders say of an order, and what the referee says, who shares no code with
// them.

#include "csrc/graph/file.h"
#include "csrc/graph/schedule.h"
#include "csrc/schedule/order/from_graph.h"
#include "csrc/schedule/order/greedy.h"
#include "tests/catch.h"
#include "tests/schedule/published.h"
#include "tests/support/random_graph.h"

#include <algorithm>

using namespace berth;
using namespace berth::schedule;
using namespace berth::test;

TEST_CASE("Orders are legal where the referee says so, with his peak", "[schedule][referee]") {
  std::mt19937 random(5);
  int legal = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    CAPTURE(round);
    const graph::Graph graph = random_graph(random, 1 + random() % 12);
    const OrderProblem problem = order_problem(graph);
    Order order = problem.first_order();
    for (int k = 0; k < 6; ++k) {
      const graph::Verdict verdict = graph::replay(graph, graph::schedule_of_order(graph, order));
      CAPTURE(order, verdict.violation, problem.violation(order));
      REQUIRE(verdict.violation.empty() == problem.violation(order).empty());
      if (verdict.violation.empty()) {
        REQUIRE(verdict.peak == peak_of(problem, order));
        REQUIRE(verdict.recomputed == 0);
        ++legal;
      } else {
        ++refused;
      }
      std::swap(order[random() % order.size()], order[random() % order.size()]);
    }
  }
  CHECK(legal > 3000);
  CHECK(refused > 3000);
}

#ifdef BERTH_TEST_ZLIB
TEST_CASE("The referee has the planners' peak on published graphs", "[schedule][referee]") {
  for (const char* name : {"dnn_partitioning/OperatorGraphs__bert_L-12_training",
                           "dnn_partitioning/LayerGraphs__inceptionv3_training"}) {
    CAPTURE(name);
    const graph::Graph graph = kept_graph(name);
    const OrderProblem problem = order_problem(graph);
    for (const NamedOrder& named : constructive_orders(problem)) {
      const graph::Verdict verdict =
          graph::replay(graph, graph::schedule_of_order(graph, named.order));
      CAPTURE(named.name);
      REQUIRE(verdict.violation == "");
      REQUIRE(verdict.peak == peak_of(problem, named.order));
    }
  }
}
#endif  // BERTH_TEST_ZLIB
