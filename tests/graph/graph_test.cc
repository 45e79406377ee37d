#include "csrc/graph/graph.h"

#include "csrc/graph/edges.h"
#include "csrc/graph/file.h"
#include "tests/catch.h"

#include <berth/error.h>

#include <random>
#include <string>

using namespace berth;
using namespace berth::graph;

namespace {

// Weights w, input x; y = f(x, w); y += x in place; z = g(part of y); w is updated.
constexpr const char* kSmall = R"({"format": "berth-graph 1",
 "storages": [{"bytes": 64, "class": "resident", "role": "parameter"}, {"bytes": 128, "class": "input"},
              {"bytes": 128, "class": "step", "role": "activation"}, {"bytes": 32, "class": "step"}],
 "operators": [
  {"name": "f", "phase": "forward", "alternatives": [
    {"ns": 10, "workspace": 512, "reads": [[0, 0, 0, 64], [1, 0, 0, 128]], "writes": [[2, 1]]},
    {"ns": 20, "workspace": 0, "reads": [[0, 0, 0, 64], [1, 0, 0, 128]], "writes": [[2, 1]], "in_place": [[[1, 0], [2, 1]]],
     "algorithm": "winograd"}]},
  {"name": "add_", "phase": "forward", "traits": ["random"], "alternatives": [
    {"ns": 1, "workspace": 0, "reads": [[2, 1, 0, 128], [1, 0, 0, 128]], "writes": [[2, 2]]}]},
  {"name": "g", "phase": "backward", "forward": 0, "alternatives": [
    {"ns": 5, "workspace": 0, "reads": [[2, 2, 32, 64]], "writes": [[3, 1]]}]},
  {"name": "step", "phase": "optimizer", "traits": ["changes_state"], "alternatives": [
    {"ns": 2, "workspace": 0, "reads": [[3, 1, 0, 32]], "writes": [[0, 1]]}]}],
 "control": [[0, 3]], "order": [0, 1, 2, 3]})";

std::string error_of(const std::string& text) {
  try {
    (void)parse_graph(text, "x.graph");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

// kSmall with one text in the place of another.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = kSmall;
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("A graph is read and written as it is", "[graph]") {
  const Graph graph = parse_graph(kSmall, "x.graph");
  REQUIRE(graph.storages.size() == 4);
  REQUIRE(graph.operators.size() == 4);
  CHECK(graph.storages[0].role == trace::RoleKind::kParameter);
  CHECK(graph.operators[0].alternatives[1].in_place.size() == 1);
  CHECK(graph.operators[0].alternatives[0].algorithm.empty());
  CHECK(graph.operators[0].alternatives[1].algorithm == "winograd");
  CHECK(graph.operators[2].forward == OperatorId{0});
  CHECK(graph.operators[2].phase == Phase::kBackward);
  CHECK(graph.operators[1].traits.random);
  CHECK(graph.operators[3].traits.changes_state);
  CHECK(parse_graph(to_json(graph), "y.graph") == graph);
}

TEST_CASE("Edges keep the order of reads and writes of the same bytes", "[graph]") {
  const Edges edges = edges_of(parse_graph(kSmall, "x.graph"));
  const std::vector<std::pair<OperatorId, OperatorId>> wanted = {
      {0, 1},  // y is added to, and made before
      {0, 3},  // w is read before it is updated
      {1, 2},  // the second version is read
      {2, 3}};
  CHECK(edges.order == wanted);
  CHECK(edges.values.at({2, 1}).maker == OperatorId{0});
  CHECK(edges.values.at({1, 0}).readers == std::vector<OperatorId>{0, 1});
  CHECK_FALSE(edges.values.at({0, 0}).maker);
}

TEST_CASE("Weights are updated after all that read them, with no control edge", "[graph]") {
  const Edges with = edges_of(parse_graph(kSmall, "x.graph"));
  const Edges without =
      edges_of(parse_graph(changed(R"("control": [[0, 3]])", R"("control": [])"), "x.graph"));
  CHECK(without.order == with.order);
}

TEST_CASE("What shares no bytes keeps its recorded order where its traits ask for it", "[graph]") {
  Graph graph;
  for (StorageId s = 0; s < 5; ++s) {
    Storage storage;
    storage.bytes = 8;
    graph.storages.push_back(storage);
    Operator op;
    op.name = "op";
    op.alternatives.resize(1);
    op.alternatives[0].writes = {{s, 1}};
    graph.operators.push_back(op);
  }
  graph.order = {4, 3, 2, 1, 0};
  CHECK(edges_of(graph).order.empty());
  graph.operators[0].traits.random = graph.operators[3].traits.random = true;
  graph.operators[1].traits.collective = graph.operators[4].traits.host_sync = true;
  const std::vector<std::pair<OperatorId, OperatorId>> wanted = {{3, 0}, {4, 1}};
  CHECK(edges_of(graph).order == wanted);
}

TEST_CASE("What is no graph is one message that names the operator", "[graph]") {
  const struct {
    std::string text, message;
  } cases[] = {
      {"",
       "'x.graph': it is neither JSON nor another form of a graph. These are read: berth's graph"},
      {"[]", "'x.graph': it is no JSON object"},
      {"{}",
       "'x.graph': it has neither a format, nor nodes with edges or links: it is no graph. "
       "These are read: berth's graph"},
      {std::string(1'000'000, '['), "'x.graph': brackets are nested more than 16 deep"},
      {changed("berth-graph 1", "berth-graph 2"),
       "'x.graph': its format is \"berth-graph 2\", this berth reads 'berth-graph 1'"},
      {changed("\"bytes\": 64", "\"bytes\": -64"),
       "'x.graph': storage 0 has -64: a whole number from 0 to 4611686018427387904 is wanted"},
      {changed("\"class\": \"input\"", "\"class\": \"weight\""),
       "'x.graph': storage 1 is \"weight\", legal are: step, input, resident"},
      {changed("\"phase\": \"backward\"", "\"phase\": 7"),
       "'x.graph': operator 2 phase is 7, legal are: forward, loss, backward, optimizer"},
      {changed("[[3, 1]]}]},", "[[3, 1], [2, 1]]}]},"),
       "'x.graph': operator 2 (g) makes version 1 of storage 2, which operator 0 makes, too"},
      {changed("\"writes\": [[0, 1]]", "\"writes\": [[0, 2]]"),
       "'x.graph': storage 0 has version 2 and none before it"},
      {changed("\"writes\": [[0, 1]]", "\"writes\": [[0, 0]]"),
       "'x.graph': operator 3 (step) makes version 0 of storage 0: that was there before the step"},
      {changed("[[3, 1, 0, 32]]", "[[3, 4, 0, 32]]"),
       "'x.graph': operator 3 (step) reads version 4 of storage 3, which nobody makes"},
      {changed("[[2, 2, 32, 64]]", "[[3, 1, 0, 32]]"),
       "'x.graph': operator 2 (g) reads version 1 of storage 3, which it makes"},
      {changed("\"writes\": [[3, 1]]", "\"writes\": [[3, 1], [3, 2]]"),
       "'x.graph': operator 2 (g) makes two versions of storage 3"},
      {changed("[[[1, 0], [2, 1]]]", "[[[1, 0], [22, 1]]]"),
       "'x.graph': operator 0 (f) names storage 22, there are 4"},
      {changed("[[2, 2, 32, 64]]", "[[2, 2, 100, 64]]"),
       "'x.graph': operator 2 (g) reads bytes 100 to 164 of storage 2, which has 128"},
      {changed("[[2, 2, 32, 64]]", "[[9, 2, 32, 64]]"),
       "'x.graph': operator 2 (g) names storage 9, there are 4"},
      {changed("\"forward\": 0", "\"forward\": 12"),
       "'x.graph': operator 2 (g) takes the gradient of operator 12, there are 4"},
      {changed("[[0, 3]]", "[[3, 0]]"), "'x.graph': operator 0 (f) lies on a cycle, or behind one"},
      {changed("[[0, 3]]", "[[3, 40]]"),
       "'x.graph': a control edge names operator 40, there are 4"},
      {changed("[0, 1, 2, 3]", "[0, 1, 1, 3]"),
       "'x.graph': the recorded order names operator 1 twice, or there is none"},
      {changed("[0, 1, 2, 3]", "[0, 1]"), "'x.graph': the recorded order has 2 operators of 4"},
      {changed("\"bytes\": 64", "\"bytes\": 4611686018427387904"),
       "'x.graph': with the 128 bytes of storage 1 all sizes together are above "
       "4611686018427387904"},
  };
  for (const auto& [text, message] : cases) CHECK(error_of(text).starts_with(message));
}

TEST_CASE("Published graphs become ours", "[graph]") {
  const Graph parted = parse_graph(
      R"({"nodes": [{"id": 7, "name": "w", "fpgaLatency": 0, "isBackwardNode": false},
                    {"id": 3, "name": "a", "fpgaLatency": 0.5, "isBackwardNode": 0},
                    {"id": 5, "name": "b", "fpgaLatency": 2, "isBackwardNode": 1}],
          "edges": [{"sourceId": 7, "destId": 3, "size": 10.5}, {"sourceId": 3, "destId": 5, "size": 8},
                    {"sourceId": 3, "destId": 5, "size": 4}]})",
      "p");
  REQUIRE(parted.operators.size() == 2);
  CHECK(parted.storages[0] == Storage{11, StorageClass::kResident, trace::RoleKind::kUnknown});
  CHECK(parted.operators[0].alternatives[0].writes.size() == 2);  // one a size
  CHECK(parted.operators[0].alternatives[0].ns == 500'000);
  CHECK(parted.operators[1].phase == Phase::kBackward);
  const Graph keras = parse_graph(
      R"({"nodes": [{"id": 0, "name": "x", "backward": false, "cost_cpu": 3, "cost_ram": 100},
                    {"id": 1, "name": "y", "backward": true, "cost_cpu": 4, "cost_ram": 50}],
          "links": [{"source": 0, "target": 1}]})",
      "k");
  CHECK(keras.operators[1].alternatives[0].reads[0].bytes == 100);
  const Graph layered = parse_graph(
      R"({"nodes": [{"name": 5, "out_cost": 9, "duration": 1}, {"name": 2, "out_cost": 4, "duration": 2}],
          "links": [{"0": 5, "1": 2}]})",
      "l");
  CHECK(layered.operators[1].alternatives[0].reads[0].bytes == 9);
  CHECK(error_of(R"({"nodes": [{"id": 1}, {"id": 1}], "edges": []})") ==
        "'x.graph': a node has the id 1, as another has");
  CHECK(error_of(R"({"nodes": [{"id": 1}], "edges": [{"sourceId": 1, "destId": 2, "size": 1}]})") ==
        "'x.graph': an edge names node 2, which is not there");
}

TEST_CASE("Damaged files are refused, or are graphs", "[graph][fuzz]") {
  std::mt19937 random(3);
  const std::string whole = kSmall;
  int refused = 0;
  constexpr int kRounds = 20'000;
  for (int round = 0; round < kRounds; ++round) {
    std::string text = whole;
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 30));
          break;
        default:
          text[at] = "0123456789-.e[]{},\""[random() % 19];
      }
      if (text.empty()) break;
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
}
