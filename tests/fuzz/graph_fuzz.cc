// The readers of graphs, in every form, and what is made of what they accept.
#include "csrc/core/check.h"
#include "csrc/graph/file.h"
#include "csrc/schedule/order/from_graph.h"
#include "tests/fuzz/fuzz.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace berth {
namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

fuzz::Input as_input(std::string_view text) { return {text.begin(), text.end()}; }

constexpr std::string_view kBerth = R"({"format": "berth-graph 1",
 "storages": [{"bytes": 64, "class": "resident", "role": "parameter"}, {"bytes": 128, "class": "input"},
              {"bytes": 128, "class": "step"}, {"bytes": 32, "class": "step"}],
 "operators": [
  {"name": "f", "phase": "forward", "alternatives": [
    {"ns": 10, "workspace": 512, "algorithm": "direct", "reads": [[0, 0, 0, 64], [1, 0, 0, 128]], "writes": [[2, 1]]},
    {"ns": 20, "workspace": 0, "reads": [[1, 0, 0, 128]], "writes": [[2, 1]], "in_place": [[[1, 0], [2, 1]]]}]},
  {"name": "g", "phase": "backward", "traits": ["random"], "forward": 0, "alternatives": [
    {"ns": 5, "workspace": 0, "reads": [[2, 1, 32, 64]], "writes": [[3, 1], [2, 2]]}]}],
 "control": [[0, 1]], "order": [0, 1]})";
constexpr std::string_view kPartitioning =
    R"({"nodes": [{"id": 7, "name": "w", "fpgaLatency": 0, "isBackwardNode": false},
                  {"id": 3, "name": "a", "fpgaLatency": 0.5, "isBackwardNode": 0},
                  {"id": 5, "name": "b", "fpgaLatency": 2, "isBackwardNode": 1}],
        "edges": [{"sourceId": 7, "destId": 3, "size": 10.5}, {"sourceId": 3, "destId": 5, "size": 8}]})";
constexpr std::string_view kKeras =
    R"({"nodes": [{"id": 0, "name": "x", "backward": false, "cost_cpu": 3, "cost_ram": 100},
                  {"id": 1, "name": "y", "backward": true, "cost_cpu": 4, "cost_ram": 50}],
        "links": [{"source": 0, "target": 1}]})";
constexpr std::string_view kLayered =
    R"({"nodes": [{"name": 5, "out_cost": 9, "duration": 1}, {"name": 2, "out_cost": 4, "duration": 2}],
        "links": [{"0": 5, "1": 2}]})";
constexpr std::string_view kMonet =
    R"({"loss_id": 1, "cost_variants": [[
 {"kind": "fwd", "op": "a", "out_bytes": 64, "fixed_bytes": 8, "local_bytes": 0, "deps": [[]],
  "ms": [1, -1000], "ws_mb": [0.5, 0], "conv": 0},
 {"kind": "loss", "op": "l", "out_bytes": 64, "fixed_bytes": 8, "local_bytes": 64, "deps": [[0]],
  "ms": [0], "ws_mb": [0], "inplace_over": 0, "ip_ms": [0], "ip_ws_mb": [-1]},
 {"kind": "bwd", "op": "b", "out_bytes": 64, "fixed_bytes": 16, "local_bytes": 64, "deps": [[0, 1], [1]],
  "ms": [2, 3], "ws_mb": [-0.1, 0]}]]})";
constexpr std::string_view kLog = R"({"ANNOTATION":"START","INSTRUCTION":"ANNOTATE"}
{"INSTRUCTION":"CONSTANT","NAME":"w"}
{"INSTRUCTION":"MEMORY","MEMORY":"64","NAME":"w"}
{"DST":"v","INSTRUCTION":"COPY","SRC":"w"}
{"ARGS":["v"],"INSTRUCTION":"CALL","NAME":"mm","RESULT":["y"],"TIME":"1500"}
{"INSTRUCTION":"MEMORY","MEMORY":"64","NAME":"y"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"y"}
{"ARGS":["y","w"],"INSTRUCTION":"MUTATE","MUTATE":[0],"NAME":"add_","TIME":"200"}
{"DST":"v","INSTRUCTION":"COPY_FROM","SRC":"y"}
{"INSTRUCTION":"RELEASE","NAME":"y"}
)";

}  // namespace

namespace fuzz {

std::vector<std::pair<std::string, Input>> seeds() {
  return {{"berth", as_input(kBerth)},
          {"partitioning", as_input(kPartitioning)},
          {"keras", as_input(kKeras)},
          {"layered", as_input(kLayered)},
          {"dtr_log", as_input(kLog)},
          {"monet", as_input(kMonet)},
          {"brackets", as_input(std::string(100'000, '['))},
          {"empty", as_input("")}};
}

void repair(Input&) {}

}  // namespace fuzz
}  // namespace berth

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace berth;
  // A copy of its own, so that a read beyond the end is seen.
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const graph::Graph graph = graph::parse_graph(text, "input");
    require(graph::violation(graph).empty(), "what is read is a graph");
    require(graph::parse_graph(graph::to_json(graph), "again") == graph,
            "what is written reads back");
    const schedule::OrderProblem problem = schedule::order_problem(graph);
    require(problem.violation(problem.first_order()).empty(), "a graph has an order");
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::kInput, "refusals are input errors");
  }
  return 0;
}
