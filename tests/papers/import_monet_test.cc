#include "csrc/graph/file.h"
#include "tests/catch.h"

#include <berth/error.h>

#include <random>
#include <string>

using namespace berth;
using namespace berth::graph;
using Catch::Matchers::Contains;

namespace {

// A convolution with two algorithms of three, a ReLU that may be in place and has a mask, the loss,
// and back: the ReLU's gradient from its result, its input or its mask, then the weights' and the
// input's.
constexpr const char* kTable =
    R"json({"name": "small_1_all", "loss_id": 3, "num_nodes": 7, "cost_variants": [[
 {"id": 0, "kind": "fwd", "op": "conv", "out_bytes": 2097152, "fixed_bytes": 1000, "local_bytes": 0,
  "deps": [[]], "ms": [1.5, -1000, 1.001], "ws_mb": [0, 0, 0.5], "conv": 0},
 {"id": 1, "kind": "fwd", "op": "relu_", "out_bytes": 2097152, "fixed_bytes": 1000, "local_bytes": 2097152,
  "deps": [[0]], "ms": [0.2, 0.9], "ws_mb": [0.25, 2], "inplace_over": 0, "ip_ms": [0.1, 0.8], "ip_ws_mb": [-2, 0]},
 {"id": 2, "kind": "int", "op": "mask", "parent": 1, "parent_impl": 1, "out_bytes": 65536, "fixed_bytes": 1000,
  "local_bytes": 2097152, "deps": [[1]], "ms": [0.7], "ws_mb": [2]},
 {"id": 3, "kind": "loss", "op": "loss", "out_bytes": 2097152, "fixed_bytes": 1000, "local_bytes": 2097152,
  "deps": [[1]], "ms": [0], "ws_mb": [0]},
 {"id": 4, "kind": "bwd", "op": "relu_back", "fwd_id": 1, "out_bytes": 2097152, "fixed_bytes": 1000,
  "local_bytes": 2097152, "deps": [[1, 3], [0, 3], [2, 3]], "ms": [0.3, 0.31, 0.6], "ws_mb": [-2, -1, 0]},
 {"id": 5, "kind": "bwd", "op": "conv_weights", "fwd_id": 0, "out_bytes": 0, "fixed_bytes": 1800,
  "local_bytes": 0, "deps": [[4]], "ms": [2], "ws_mb": [0.001]},
 {"id": 6, "kind": "bwd", "op": "conv_input", "fwd_id": 0, "out_bytes": 512, "fixed_bytes": 1800,
  "local_bytes": 0, "deps": [[4]], "ms": [3], "ws_mb": [0]}]], "published_plans": {}})json";

// kTable with one text in the place of another, read.
std::string error_of(const std::string& from, const std::string& to) {
  std::string text = kTable;
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  try {
    (void)parse_graph(text.replace(at, from.size(), to), "m.json");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("A table of costs of MONeT's becomes a step", "[graph][monet]") {
  const Graph graph = parse_graph(kTable, "m.json");
  std::vector<std::string> names;
  for (const Operator& op : graph.operators) names.push_back(op.name);
  // The mask is none: our operators make the same results in each way.
  CHECK(names == std::vector<std::string>{"conv", "relu_", "loss", "relu_back", "conv_weights",
                                          "conv_input", "update"});
  CHECK(graph.operators[2].phase == Phase::kLoss);
  CHECK(graph.operators[3].phase == Phase::kBackward);
  CHECK(graph.storages[0] == Storage{1000, StorageClass::kResident, trace::RoleKind::kParameter});

  // Times in 10 microseconds, rounded up; the algorithm that cannot be had is not there.
  const auto& conv = graph.operators[0].alternatives;
  REQUIRE(conv.size() == 2);
  CHECK(conv[0].ns == 1'500'000);
  CHECK(conv[0].algorithm == "algorithm 0");
  CHECK(conv[1].ns == 1'010'000);
  CHECK(conv[1].workspace == 512 * 1024);
  CHECK(conv[1].algorithm == "algorithm 2");

  // In place is an offer, with the slower form's time and what it needs beyond the bytes.
  const auto& relu = graph.operators[1].alternatives;
  REQUIRE(relu.size() == 1);  // the other makes the mask
  CHECK(relu[0].ns == 200'000);
  CHECK(relu[0].workspace == 256 * 1024);
  CHECK(relu[0].in_place ==
        std::vector<std::pair<ValueId, ValueId>>{{conv[0].writes[0], relu[0].writes[0]}});

  // Of the ways back the one from the mask is left out. What is negative takes over the gradient.
  const auto& back = graph.operators[3].alternatives;
  REQUIRE(back.size() == 2);
  CHECK(back[0].reads[0].value == relu[0].writes[0]);
  CHECK(back[1].reads[0].value == conv[0].writes[0]);
  REQUIRE(back[0].in_place.size() == 1);
  CHECK(back[0].in_place[0].first == graph.operators[2].alternatives[0].writes[0]);
  CHECK(back[0].workspace == 0);
  CHECK(back[1].workspace == 1 << 20);

  // Gradients of weights are what the fixed bytes grow by, and stay to the end.
  const ValueId gradient = graph.operators[4].alternatives[0].writes[0];
  CHECK(graph.storages[gradient.storage].bytes == 800);
  const Operator& update = graph.operators[6];
  CHECK(update.phase == Phase::kOptimizer);
  REQUIRE(update.alternatives[0].reads.size() == 1);
  CHECK(update.alternatives[0].reads[0].value == gradient);
}

TEST_CASE("What is no table of costs is one message that names the node", "[graph][monet]") {
  CHECK_THAT(error_of(R"("deps": [[4]], "ms": [2])", R"("deps": [[6]], "ms": [2])"),
             Contains("'m.json': node 5 names node 6, which is not before it"));
  CHECK_THAT(error_of(R"("kind": "loss")", R"("kind": "bwd")"),
             Contains("node 3 is on the wrong side of the loss, node 3"));
  CHECK_THAT(error_of(R"("kind": "fwd")", R"("kind": 5)"), Contains("node 0 is of kind 5"));
  CHECK_THAT(error_of(R"("ms": [2])", R"("ms": [-2])"), Contains("node 5 cannot be run"));
  CHECK_THAT(error_of(R"("ms": [2])", R"("ms": [2, 3])"),
             Contains("node 5 has 2 times and 1 workspaces"));
  CHECK_THAT(error_of(R"("ms": [3])", R"("ms": ["3"])"), Contains("node 6 is no number"));
  CHECK_THAT(error_of(R"("loss_id": 3)", R"("loss_id": 6)"),
             Contains("a table of 7 nodes with the loss at 6"));
  CHECK_THAT(error_of(R"("parent": 1, )", ""), Contains("node 2 has a parent and is no part"));
  CHECK_THAT(error_of(R"("inplace_over": 0)", R"("inplace_over": 1)"),
             Contains("node 1 names node 1"));
  CHECK_THAT(error_of(R"("out_bytes": 512)", R"("out_bytes": -1)"), Contains("node 6 has -1"));
}

TEST_CASE("Damaged tables of costs are refused, or are graphs", "[graph][monet][fuzz]") {
  std::mt19937 random(11);
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = kTable;
    for (std::size_t k = 1 + random() % 3; k > 0; --k)
      text[random() % text.size()] = "0123456789-[]{},\"e"[random() % 18];
    try {
      const Graph graph = parse_graph(text, "x");
      CHECK(violation(graph).empty());
      ++accepted;
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::kInput);
    }
  }
  CHECK(accepted > 100);
}
