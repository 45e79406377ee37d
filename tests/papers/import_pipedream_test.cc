#include "csrc/graph/edges.h"
#include "csrc/graph/file.h"
#include "tests/catch.h"

#include <berth/error.h>

#include <fmt/format.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace berth;
using namespace berth::graph;

namespace {

// x -> a -> (b, c) -> d; b has two results.
constexpr const char* kProfile = R"json({"name": "small", "nodes": [
 {"id": "node10", "op": "Concat(1)", "fwd_ms": 0.5, "bwd_ms": 0.25, "activation_bytes": 30.0, "param_bytes": 0.0},
 {"id": "node1", "op": "Input", "fwd_ms": 2, "bwd_ms": 0, "activation_bytes": 10, "param_bytes": 0},
 {"id": "node2", "op": "Conv2d(3, 4)", "fwd_ms": 1.5, "bwd_ms": 3.0, "activation_bytes": 40.0, "param_bytes": 8.0},
 {"id": "node3", "op": "LSTM(4)", "fwd_ms": 1, "bwd_ms": 2, "activation_bytes": [20.0, 5.0], "param_bytes": 0},
 {"id": "node9", "op": "Dropout(p=0.5)", "fwd_ms": 1, "bwd_ms": 2, "activation_bytes": 40, "param_bytes": 0}],
 "edges": [["node1", "node2"], ["node2", "node3"], ["node2", "node9"], ["node3", "node10"], ["node9", "node10"]]})json";

// kProfile with one text in the place of another, read.
std::string error_of(const std::string& from, const std::string& to) {
  std::string text = kProfile;
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  try {
    (void)parse_graph(text.replace(at, from.size(), to), "p.json");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("A layer profile becomes both directions of a step", "[graph][pipedream]") {
  const Graph graph = parse_graph(kProfile, "p.json");
  std::vector<std::string> names;
  for (const Operator& op : graph.operators) names.push_back(op.name);
  CHECK(names == std::vector<std::string>{"Input", "Conv2d(3, 4)", "LSTM(4)", "Dropout(p=0.5)",
                                          "Concat(1)", "Concat(1), backward",
                                          "Dropout(p=0.5), backward", "LSTM(4), backward",
                                          "Conv2d(3, 4), backward", "Input, backward"});
  CHECK(graph.operators[1].alternatives[0].ns == 1'500'000);
  CHECK(graph.operators[8].alternatives[0].ns == 3'000'000);
  CHECK(graph.operators[8].forward == OperatorId{1});
  CHECK(graph.operators[8].phase == Phase::kBackward);
  CHECK(graph.operators[0].traits.changes_state);
  CHECK(graph.operators[3].traits.random);
  CHECK(graph.operators[2].alternatives[0].writes.size() == 2);
  // Two layers read what the convolution makes: the second adds to the gradient of the first.
  const Operator& dropout = graph.operators[6];
  const Operator& lstm = graph.operators[7];
  REQUIRE(dropout.alternatives[0].writes.size() == 1);
  const ValueId gradient = dropout.alternatives[0].writes[0];
  CHECK(graph.storages[gradient.storage].bytes == 40);
  CHECK(lstm.alternatives[0].writes == std::vector<ValueId>{{gradient.storage, 2}});
  // The convolution's: its result, the gradient of that, its weights, its input.
  CHECK(graph.operators[8].alternatives[0].reads.size() == 4);
  CHECK(graph.operators[8].alternatives[0].reads[1].value == ValueId{gradient.storage, 2});
  CHECK(parse_graph(to_json(graph), "q.graph") == graph);
}

TEST_CASE("PipeDream's own graph.txt is read as the same profile", "[graph][pipedream]") {
  // As its profiler writes it; a partitioned one has stages.
  const auto text = [](const char* stage) {
    return fmt::format(
        "node10 -- Concat(1) -- forward_compute_time=0.500, backward_compute_time=0.250, "
        "activation_size=30.0, parameter_size=0.000{0}\n"
        "node1 -- Input -- forward_compute_time=2.000, backward_compute_time=0.000, "
        "activation_size=10.000, parameter_size=0.000{0}\n"
        "node2 -- Conv2d(3, 4) -- forward_compute_time=1.500, backward_compute_time=3.000, "
        "activation_size=40.0, parameter_size=8.000{0}\n"
        "node3 -- LSTM(4) -- forward_compute_time=1.000, backward_compute_time=2.000, "
        "activation_size=[20.0; 5.0], parameter_size=0.000{0}\n"
        "node9 -- Dropout(p=0.5) -- forward_compute_time=1.000, backward_compute_time=2.000, "
        "activation_size=40.0, parameter_size=0.000{0}\n"
        "\tnode1 -- node2\n\tnode2 -- node3\n\tnode2 -- node9\n\tnode3 -- node10\n"
        "\tnode9 -- node10",
        stage);
  };
  const Graph graph = parse_graph(kProfile, "p.json");
  CHECK(parse_graph(text(""), "graph.txt") == graph);
  CHECK(parse_graph(text(" -- stage_id=1"), "graph.txt") == graph);
}

TEST_CASE("A damaged graph.txt is one message that names the line", "[graph][pipedream]") {
  const std::string layer =
      "node1 -- Input -- forward_compute_time=2.000, backward_compute_time=0.000, "
      "activation_size=10.000, parameter_size=0.000\n";
  const auto error_of_text = [](const std::string& text) -> std::string {
    try {
      (void)parse_graph(text, "graph.txt");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
      return error.what();
    }
    return "accepted";
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(error_of_text(layer + "node2 -- ReLU\n"), Contains("line 2 is no layer"));
  CHECK_THAT(error_of_text(layer + "\tnode1 -- node7\n"), Contains("node7"));
  CHECK_THAT(error_of_text(layer + "\tnode1\n"), Contains("an edge names node"));
  CHECK_THAT(error_of_text(layer + layer), Contains("two nodes have the id 'node1'"));
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"=10.000", "=ten"}, {"=10.000", "=[1; x]"}, {"=10.000", "=[1; 2"}, {"=2.000", "="}}) {
    std::string text = layer;
    CHECK_THAT(error_of_text(text.replace(text.find(from), from.size(), to)), Contains("line 1"));
  }
  std::string text = layer;
  CHECK_THAT(error_of_text(text.replace(text.find(", parameter_size=0.000"), 22, "")),
             Contains("param_bytes"));
}

TEST_CASE("A damaged layer profile is one message that names the node", "[graph][pipedream]") {
  const struct {
    std::string from, to, message;
  } cases[] = {
      {"\"node10\"],", "", "'p.json': it is neither JSON nor another form of a graph"},
      {"\"fwd_ms\": 1.5", "\"fwd_ms\": NaN",
       "'p.json': it is neither JSON nor another form of a graph"},
      {"\"fwd_ms\": 1.5", "\"fwd_ms\": -1.5",
       "'p.json': node 'node2' has -1.5 ms, 0 to 1e12 are legal"},
      {"\"fwd_ms\": 1.5", "\"fwd_ms\": \"1\"",
       "'p.json': node 'node2' has \"1\": a time in ms is wanted"},
      {"\"activation_bytes\": 40.0", "\"activation_bytes\": -4",
       "'p.json': node 'node2' has -4 bytes, 0 to 4611686018427387904 are legal"},
      {"\"activation_bytes\": 40.0", "\"activation_bytes\": 1e30",
       "'p.json': node 'node2' has 1e+30 bytes, 0 to 4611686018427387904 are legal"},
      {"\"activation_bytes\": 40.0", "\"activation_bytes\": 4e18",
       "'p.json': with the 4000000000000000000 bytes of storage 10 all sizes together are above "
       "4611686018427387904"},
      {"[20.0, 5.0]", "[]", "'p.json': node 'node3' has 0 results, 1 to 256 are legal"},
      {"\"id\": \"node3\"", "\"id\": \"node9\"", "'p.json': two nodes have the id 'node9'"},
      {"\"id\": \"node3\"", "\"id\": 3", "'p.json': node 3 has 3: a text is wanted"},
      {"\"op\": \"LSTM(4)\"", "\"oq\": 4", "'p.json': node 'node3' has no 'op'"},
      {"[\"node1\", \"node2\"]", "[\"node1\", \"node7\"]",
       "'p.json': an edge names node \"node7\", which is not there"},
      {"[\"node1\", \"node2\"]", "[\"node1\"]",
       "'p.json': an edge is [\"node1\"]: a pair of nodes is wanted"},
      {"[\"node1\", \"node2\"]", "[\"node10\", \"node2\"]",
       "'p.json': node 'node10' lies on a cycle, or behind one"},
      {"[\"node1\", \"node2\"]", "[\"node1\", \"node1\"]",
       "'p.json': node 'node1' lies on a cycle, or behind one"},
  };
  for (const auto& [from, to, message] : cases) CHECK(error_of(from, to).starts_with(message));
}

TEST_CASE("A layer profile with random damage is refused, or is a graph",
          "[graph][pipedream][fuzz]") {
  constexpr unsigned kSeed = 5;
  CAPTURE(kSeed);
  std::mt19937 random(kSeed);
  const std::string whole = kProfile;
  int refused = 0;
  constexpr int kRounds = 10'000;
  for (int round = 0; round < kRounds; ++round) {
    std::string text = whole.substr(0, round % 10 == 0 ? random() % whole.size() : whole.size());
    if (!text.empty()) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0)
        text[at] = "0123456789-.e[]{},\""[random() % 19];
      else
        text.erase(at, 1 + random() % 20);
    }
    try {
      const Graph graph = parse_graph(text, "x");
      REQUIRE(violation(graph).empty());
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::kInput);
      ++refused;
    }
  }
  CHECK(refused > kRounds / 2);
  CHECK(refused < kRounds);
}
