// A trace in which a step program ran has the step that the program has.
#include "csrc/graph/step_from_trace.h"

#include "csrc/core/check.h"
#include "tests/graph/traced.h"

#include <string>
#include <utility>

using namespace berth;
using namespace berth::graph;
using namespace berth::test;
using trace::Access;

namespace {

class Steps {
 public:
  template <typename Body>
  void step(const Body& body) {
    run.add(trace::RangeBegin{++ranges_, run.builder.name(std::string(kStepRange))});
    body();
    run.add(trace::RangeEnd{ranges_});
  }
  [[nodiscard]] std::optional<TracedGraph> graph() {
    return step_from_trace(run.builder.trace(), TracedRun(run.builder.trace()));
  }

  Recording run;

 private:
  std::uint64_t ranges_ = 0;
};

std::vector<std::string> names(const Graph& graph) {
  std::vector<std::string> all;
  for (const Operator& op : graph.operators) all.push_back(op.name);
  return all;
}

}  // namespace

TEST_CASE("The step is what ran in its range, and one operator more that takes what is left",
          "[graph][trace][step]") {
  Steps steps;
  const BlockId weight = steps.run.request(256);
  for (int n = 0; n < 3; ++n) {
    const BlockId batch = steps.run.make("aten::randn", {}, 128);  // by the loader
    BlockId left = 0;
    steps.step([&] {
      const BlockId product = steps.run.make("aten::mm", {weight, {batch, 64, 32}}, 512);
      left = steps.run.make("aten::sum", {product}, 4);
      steps.run.free(product);
      steps.run.change("aten::add_", weight, {left});
    });
    steps.run.make("aten::mul", {left}, 4);  // after it
    steps.run.free({batch, left});
  }
  const auto traced = steps.graph();
  REQUIRE(traced);
  const Graph& graph = traced->graph;
  CHECK(names(graph) ==
        std::vector<std::string>{"aten::mm", "aten::sum", "aten::add_", "end of the step"});
  REQUIRE(graph.storages.size() == 4);
  CHECK(graph.storages[0] == Storage{.bytes = 256, .kind = StorageClass::kResident});
  // Still there when the step has ended, so its bytes are nobody else's within.
  CHECK(graph.storages[1] == Storage{.bytes = 128, .kind = StorageClass::kResident});
  CHECK(graph.storages[2] == Storage{.bytes = 512, .kind = StorageClass::kStep});
  CHECK(graph.operators[0].alternatives[0].reads ==
        std::vector<Read>{{{0, 0}, 0, 256}, {{1, 0}, 64, 32}});
  CHECK(graph.operators[2].alternatives[0].writes == std::vector<ValueId>{{0, 1}});
  CHECK(graph.operators[2].traits.changes_state);
  CHECK(graph.operators[3].alternatives[0].reads == std::vector<Read>{{{3, 1}, 0, 4}});
  CHECK(traced->steps == 2);
  // It is also what is made of the trace as a whole.
  CHECK(graph_from_trace(steps.run.builder.trace()).graph == graph);
}

TEST_CASE("Room that the body fills comes from outside, and what is small is always its",
          "[graph][trace][step]") {
  Steps steps;
  for (int n = 0; n < 2; ++n)
    steps.step([&] {
      for (const Bytes bytes : {Bytes{64}, Bytes{8192}, Bytes{16384}}) {
        const BlockId room = steps.run.make("aten::empty.memory_format", {}, bytes);
        if (bytes != 16384) steps.run.change("aten::zero_", room);
        steps.run.free(steps.run.make("aten::sum", {room}, 4));
        steps.run.free(room);
      }
    });
  const auto traced = steps.graph();
  REQUIRE(traced);
  std::map<Bytes, StorageClass> kinds;
  for (const Storage& storage : traced->graph.storages)
    if (storage.bytes > 64 || !kinds.contains(64)) kinds[storage.bytes] = storage.kind;
  CHECK(kinds == std::map<Bytes, StorageClass>{{64, StorageClass::kInput},
                                               {8192, StorageClass::kStep},
                                               {16384, StorageClass::kInput}});
}

TEST_CASE("What reads a value that was made behind a read of the host has no edge to that read",
          "[graph][trace][step]") {
  Steps steps;
  const BlockId weight = steps.run.request(256);
  for (int n = 0; n < 2; ++n)
    steps.step([&] {
      const BlockId first = steps.run.make("aten::mul", {weight}, 64);
      steps.run.read("aten::item", {first});
      const BlockId behind = steps.run.make("aten::exp", {weight}, 64);
      steps.run.free(steps.run.make("aten::sum", {behind, first}, 4));
      steps.run.free({first, behind});
    });
  const auto traced = steps.graph();
  REQUIRE(traced);
  std::vector<std::pair<OperatorId, OperatorId>> control = traced->graph.control;
  std::erase_if(control, [](const auto& edge) { return edge.second == 4; });  // the end
  CHECK(control == std::vector<std::pair<OperatorId, OperatorId>>{{1, 2}});
}

TEST_CASE("A trace without two steps that are the same has no step of a program",
          "[graph][trace][step]") {
  Steps steps;
  CHECK(!steps.graph());
  const auto body = [&](Bytes bytes) {
    steps.step([&] { steps.run.free(steps.run.make("aten::ones", {}, bytes)); });
  };
  body(64);
  CHECK(!steps.graph());
  body(128);
  body(64);
  CHECK(!steps.graph());
  body(64);
  REQUIRE(steps.graph());
  CHECK(steps.graph()->graph.storages[0].bytes == 64);
}

TEST_CASE("Memory of others in a step makes it none", "[graph][trace][step]") {
  Steps steps;
  for (int n = 0; n < 3; ++n)
    steps.step([&] {
      const auto op = steps.run.begin("aten::add");
      steps.run.takes(op, {0, 0, 64});
      steps.run.end(op);
    });
  CHECK(!steps.graph());
}
