// Orders of graphs that others published (data/README.md).
#include "csrc/graph/file.h"
#include "csrc/schedule/order/from_graph.h"
#include "csrc/schedule/order/order.h"
#include "tests/catch.h"
#include "tests/schedule/published.h"

#include <limits>

using namespace berth;
using namespace berth::schedule;
using namespace berth::test;

TEST_CASE("A storage that is written again is one value", "[schedule][graph]") {
  const graph::Graph graph = graph::parse_graph(
      R"({"format": "berth-graph 1",
          "storages": [{"bytes": 100, "class": "resident"}, {"bytes": 10, "class": "input"}, {"bytes": 20, "class": "step"}],
          "operators": [
           {"name": "a", "phase": "forward", "alternatives": [{"ns": 1, "workspace": 7, "reads": [[1, 0, 0, 10]], "writes": [[2, 1]]}]},
           {"name": "b", "phase": "forward", "alternatives": [{"ns": 1, "workspace": 0, "reads": [[2, 1, 0, 20]], "writes": [[2, 2]]}]},
           {"name": "c", "phase": "forward", "alternatives": [{"ns": 1, "workspace": 0, "reads": [[2, 2, 0, 20], [0, 0, 0, 100]], "writes": [[0, 1]]}]}]})",
      "x");
  const OrderProblem problem = order_problem(graph);
  CHECK(problem.constant == 100);
  REQUIRE(problem.values.size() == 2);
  CHECK(problem.values[0].maker == kNoNode);
  CHECK(problem.values[1].maker == 0);
  CHECK(problem.values[1].readers == std::vector<Node>{1, 2});
  CHECK(live_bytes(problem, Order{0, 1, 2}) == std::vector<Bytes>{100 + 10 + 20 + 7, 120, 120});
}

namespace {

// `peak`: without residents.
void check_least_memory(const graph::Graph& graph, Bytes peak) {
  const OrderProblem problem = order_problem(graph);
  OrderOptions options;
  options.time_limit_seconds = 60;
  const OrderResult result = plan_order(problem, options);
  CHECK(problem.violation(result.order).empty());
  CHECK(result.peak - problem.constant == peak);
  CHECK(result.proven_optimal);
}

}  // namespace

#ifdef BERTH_TEST_ZLIB
TEST_CASE("The least memory of published training steps is reached and proven",
          "[schedule][acceptance]") {
  const struct {
    const char* name;
    Bytes peak;
  } rows[] = {
      {"dnn_partitioning/LayerGraphs__bert24_training", 375'054'384},
      {"dnn_partitioning/LayerGraphs__inceptionv3_training", 1'416'167'424},
      {"dnn_partitioning/OperatorGraphs__bert_L-12_training", 4'307'914'839},
      {"dnn_partitioning/OperatorGraphs__bert_l-3_training", 1'039'650'346},
  };
  for (const auto& [name, peak] : rows) {
    CAPTURE(name);
    check_least_memory(kept_graph(name), peak);
  }
}
#endif  // BERTH_TEST_ZLIB

TEST_CASE("The least memory of Moccasin's graphs is reached and proven",
          "[schedule][acceptance][fetched]") {
  const auto folder = fetched_graphs("moccasin");
  if (!folder) return;
  const struct {
    const char* file;
    Bytes peak;
  } rows[] = {
      {"ResNet50_256_224_224_3_train_nx.json", 38'059'356'160},
      {"VGG16_256_224_224_3_train_nx.json", 15'825'108'992},
      {"vgg_unet_32_416_608_3_train_nx.json", 20'959'461'376},
      {"random_layered_n100_w0.27_nlv0.75_ed0.2_scd0.14.json", 36'790},
      {"random_layered_n500_w0.36_nlv0.75_ed0.2_scd0.14.json", 247'960},
  };
  for (const auto& [file, peak] : rows) {
    CAPTURE(file);
    check_least_memory(graph::read_graph((*folder / file).string()), peak);
  }
}

TEST_CASE("Logs of DTR are steps that are ordered", "[schedule][acceptance][dtr]") {
  const auto folder = fetched_graphs("dtr_logs");
  if (!folder) return;
  const struct {
    const char* file;
    std::size_t operators, storages;  // views are no operators
    Bytes given;                      // the peak as recorded, each storage to its last reader
    bool proven;                      // within this budget
  } rows[] = {
      {"lstm-128-11000000000.0-2020-10-1-16-38-52-default.jsonl", 5240, 5248, 4'279'082'928, false},
      {"resnet32-56-9000000000.0-2020-10-1-13-3-30-default.jsonl", 271, 680, 10'061'177'400, true},
      {"transformer-10-8000000000.0-2020-10-1-10-56-5-default.jsonl", 1311, 1814, 9'346'753'088,
       true},
      {"unet-6-8000000000.0-2020-10-1-10-57-18-default.jsonl", 202, 429, 8'409'694'648, true},
  };
  for (const auto& [file, operators, storages, given, proven] : rows) {
    CAPTURE(file);
    const graph::Graph graph = graph::read_graph((*folder / file).string());
    CHECK(graph.operators.size() == operators);
    CHECK(graph.storages.size() == storages);
    const OrderProblem problem = order_problem(graph);
    OrderOptions options;
    options.time_limit_seconds = std::numeric_limits<double>::infinity();
    options.iteration_budget = 20'000;
    const OrderResult result = plan_order(problem, options);
    CHECK(problem.violation(result.order).empty());
    CHECK(result.given_peak == given);
    CHECK(result.peak < given);
    CHECK(result.gap() < 0.005);
    CHECK(result.proven_optimal >= proven);
  }
}
