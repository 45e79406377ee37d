#include "csrc/graph/edges.h"
#include "csrc/graph/file.h"
#include "tests/catch.h"

#include <berth/error.h>

#include <algorithm>
#include <string>

using namespace berth;
using namespace berth::graph;
using Catch::Matchers::Contains;

namespace {

// A weight, its view, a product, an activation in place; the gradient is held at the end.
constexpr const char* kLog = R"({"ANNOTATION":"START","INSTRUCTION":"ANNOTATE"}
{"INSTRUCTION":"CONSTANT","NAME":"w"}
{"INSTRUCTION":"MEMORY","MEMORY":"64","NAME":"w"}
{"DST":"w2","INSTRUCTION":"COPY","SRC":"w"}
{"ARGS":["w2"],"INSTRUCTION":"CALL","NAME":"t","RESULT":["wt"],"TIME":"1500"}
{"INSTRUCTION":"MEMORY","MEMORY":"64","NAME":"wt"}
{"ALIAS":"0","INSTRUCTION":"ALIAS","NAME":"wt"}
{"ARGS":["wt","w"],"INSTRUCTION":"CALL","NAME":"mm","RESULT":["y"],"TIME":"9000"}
{"INSTRUCTION":"MEMORY","MEMORY":"128","NAME":"y"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"y"}
{"INSTRUCTION":"RELEASE","NAME":"wt"}
{"ARGS":["y"],"INSTRUCTION":"MUTATE","MUTATE":[0],"NAME":"bernoulli_","TIME":"200"}
{"ANNOTATION":"BACKWARD","INSTRUCTION":"ANNOTATE"}
{"ARGS":["y","w2"],"INSTRUCTION":"CALL","NAME":"mm_backward","RESULT":["dw","rest"],"TIME":"7000"}
{"INSTRUCTION":"MEMORY","MEMORY":"64","NAME":"dw"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"dw"}
{"INSTRUCTION":"MEMORY","MEMORY":"32","NAME":"rest"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"rest"}
{"INSTRUCTION":"RELEASE","NAME":"rest"}
{"INSTRUCTION":"RELEASE","NAME":"y"}
)";

// kLog with one text in the place of another.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = kLog;
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string error_of(const std::string& text) {
  try {
    (void)parse_graph(text, "x.jsonl");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

Graph with_more(const std::string& lines) { return parse_graph(kLog + lines, "x.jsonl"); }

}  // namespace

TEST_CASE("A log of DTR becomes operators, versions and storages", "[graph][dtr]") {
  const Graph graph = parse_graph(kLog, "x.jsonl");
  REQUIRE(graph.storages.size() == 4);
  CHECK(graph.storages[0] == Storage{64, StorageClass::kResident, trace::RoleKind::kUnknown});
  CHECK(graph.storages[1] == Storage{128, StorageClass::kStep, trace::RoleKind::kUnknown});
  // The view is none; what is held at the end is read by a last one.
  REQUIRE(graph.operators.size() == 4);
  const Alternative& product = graph.operators[0].alternatives.at(0);
  CHECK(graph.operators[0].name == "mm");
  CHECK(graph.operators[0].phase == Phase::kForward);
  CHECK(product.ns == 9000);
  CHECK(product.reads == std::vector<Read>{{{0, 0}, 0, 64}});  // the view's base, once
  CHECK(product.writes == std::vector<ValueId>{{1, 1}});
  const Alternative& in_place = graph.operators[1].alternatives.at(0);
  CHECK(graph.operators[1].traits.random);
  CHECK(in_place.reads == std::vector<Read>{{{1, 1}, 0, 128}});
  CHECK(in_place.writes == std::vector<ValueId>{{1, 2}});
  CHECK(graph.operators[2].phase == Phase::kBackward);
  CHECK_FALSE(graph.operators[2].traits.random);
  CHECK(graph.operators[2].alternatives.at(0).reads ==
        std::vector<Read>{{{1, 2}, 0, 128}, {{0, 0}, 0, 64}});
  CHECK(graph.operators[3].name == "held at the end");
  CHECK(graph.operators[3].alternatives.at(0).reads == std::vector<Read>{{{2, 1}, 0, 64}});
  CHECK(parse_graph(to_json(graph), "x.graph") == graph);
}

TEST_CASE("In a log of DTR whatever is not needed runs before the end all the same",
          "[graph][dtr]") {
  const Graph graph =
      with_more(R"({"ARGS":["w"],"INSTRUCTION":"CALL","NAME":"norm","RESULT":["n"],"TIME":"1"}
{"INSTRUCTION":"MEMORY","MEMORY":"8","NAME":"n"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"n"}
{"INSTRUCTION":"RELEASE","NAME":"n"}
{"ARGS":[],"INSTRUCTION":"CALL","NAME":"print","RESULT":[],"TIME":"1"}
)");
  REQUIRE(graph.operators.size() == 6);
  CHECK(graph.control == std::vector<std::pair<OperatorId, OperatorId>>{{3, 5}, {4, 5}});
  CHECK(with_more("{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"dw\"}\n").operators.size() == 3);
}

TEST_CASE("Names in a log of DTR are used again and handles follow them", "[graph][dtr]") {
  // y is gone: it is another tensor from now on. dw becomes w's, and nothing is held.
  const Graph graph =
      with_more(R"({"ARGS":["dw"],"INSTRUCTION":"CALL","NAME":"neg","RESULT":["y"],"TIME":3}
{"INSTRUCTION":"MEMORY","MEMORY":64,"NAME":"y"}
{"ALIAS":-1,"INSTRUCTION":"ALIAS","NAME":"y"}

{"ARGS":["w","y"],"INSTRUCTION":"MUTATE","MUTATE":[0,0],"NAME":"add_","TIME":"5"}
{"INSTRUCTION":"RELEASE","NAME":"y"}
{"DST":"dw","INSTRUCTION":"COPY_FROM","SRC":"w"}
)");
  REQUIRE(graph.operators.size() == 5);
  CHECK(graph.operators[3].alternatives.at(0).reads == std::vector<Read>{{{2, 1}, 0, 64}});
  CHECK(graph.operators[3].alternatives.at(0).writes == std::vector<ValueId>{{4, 1}});
  CHECK(graph.operators[4].alternatives.at(0).writes == std::vector<ValueId>{{0, 1}});
  // The weight is written after all that read it.
  const Edges edges = edges_of(graph);
  for (const OperatorId reader : {0U, 2U})
    CHECK(std::count(edges.order.begin(), edges.order.end(), std::pair{reader, OperatorId{4}}) ==
          1);
}

TEST_CASE("What is wrong with a log of DTR is one message that names the line", "[graph][dtr]") {
  const struct {
    std::string text, message;
  } cases[] = {
      {changed(R"("ARGS":["w2"])", R"("ARGS":["w3"])"),
       "'x.jsonl': line 5: CALL t names w3, which is not held"},
      {changed(R"("RELEASE","NAME":"wt")", R"("RELEASE","NAME":"wx")"),
       "'x.jsonl': line 11: RELEASE names wx, which is not held"},
      {changed(R"("SRC":"w")", R"("SRC":"v")"),
       "'x.jsonl': line 4: COPY names v, which is not held"},
      {changed(R"("MEMORY":"128")", R"("MEMORY":"-128")"),
       "'x.jsonl': line 9: MEMORY of y has MEMORY '-128': a whole number from 0 to "
       "4611686018427387904 is wanted"},
      {changed(R"("MEMORY":"128")", R"("MEMORY":"99999999999999999999")"),
       "'x.jsonl': line 9: MEMORY of y has MEMORY '99999999999999999999': a whole number from 0 "
       "to 4611686018427387904 is wanted"},
      {changed(R"("MEMORY":"128")", R"("MEMORY":NaN)"), "'x.jsonl': line 9: it is no JSON"},
      {changed(R"("MEMORY":"128")", R"("MEMORY":"NaN")"),
       "'x.jsonl': line 9: MEMORY of y has MEMORY 'NaN': a whole number from 0 to "
       "4611686018427387904 is wanted"},
      {changed(R"("MEMORY":"128")", R"("MEMORY":"4611686018427387904")"),
       "'x.jsonl': with the 4611686018427387904 bytes of storage 1 all sizes together are above "
       "4611686018427387904"},
      {changed(R"("TIME":"9000")", R"("TIME":[])"),
       "'x.jsonl': line 8: CALL mm has []: a whole number from 0 to 4611686018427387904 is wanted"},
      {changed(R"("ALIAS":"0")", R"("ALIAS":"1")"),
       "'x.jsonl': line 7: ALIAS of wt is argument 1, there are 1"},
      {changed(R"("ALIAS":"0")", R"("ALIAS":"-2")"),
       "'x.jsonl': line 7: ALIAS of wt has ALIAS '-2': a whole number from 0 to 65536 is wanted"},
      {changed(R"("MUTATE":[0])", R"("MUTATE":[1])"),
       "'x.jsonl': line 12: MUTATE bernoulli_ writes argument 1, there are 1"},
      {changed(R"("RESULT":["y"])", R"("RESULT":["z"])"),
       "'x.jsonl': line 9: a MEMORY of z is wanted here"},
      {changed(R"("RESULT":["y"])", R"("RESULT":["y","z"])"),
       "'x.jsonl': line 11: a MEMORY of z is wanted here"},
      {changed(R"("RESULT":["y"])", R"("RESULT":7)"),
       "'x.jsonl': line 8: CALL mm has RESULT that are no list, or more than 65536"},
      {changed(R"("INSTRUCTION":"COPY")", R"("INSTRUCTION":"MOVE")"),
       "'x.jsonl': line 4: 'MOVE' is no instruction that belongs here"},
      {changed(R"("ANNOTATION":"BACKWARD")", R"("ANNOTATION":"START")"),
       "'x.jsonl': line 13: a second step begins, a file with one is wanted"},
      {changed(R"("NAME":"mm",)", ""), "'x.jsonl': line 8: CALL has no 'NAME'"},
      {changed(R"("ARGS":["w2"])", R"("ARGS":[[]])"),
       "'x.jsonl': line 5: CALL t has []: a name is wanted"},
      {std::string(kLog) + std::string(1'000'000, '['),
       "'x.jsonl': line 21: brackets are nested more than 16 deep"},
      {std::string(kLog).substr(0, 700), "'x.jsonl': line 13: it is no JSON"},
      {"{\"INSTRUCTION\":" + std::string(1'000'000, '['),
       "'x.jsonl': brackets are nested more than 16 deep"},
      {R"({"INSTRUCTION":"CONSTANT","NAME":"w"})",
       "'x.jsonl': line 2: a MEMORY of w is wanted here"},
      {"{\"INSTRUCTION\":7}", "'x.jsonl': line 1: a line's INSTRUCTION has 7: a name is wanted"},
  };
  for (const auto& [text, message] : cases) CHECK(error_of(text) == message);
}

TEST_CASE("A log of DTR that ends early is refused, or is a graph", "[graph][dtr]") {
  const std::string whole = kLog;
  int refused = 0;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    const std::string message = error_of(whole.substr(0, size));
    if (message == "accepted") continue;
    CHECK_THAT(message, Contains("x.jsonl"));
    ++refused;
  }
  CHECK(refused > 500);
}
