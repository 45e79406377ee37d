#include "csrc/plan/build.h"

#include "csrc/plan/build_kinds.h"
#include "csrc/plan/verify.h"
#include "tests/catch.h"
#include "tests/plan/plans.h"

#include <berth/error.h>

#include <string>
#include <vector>

using namespace berth;

namespace {

// Two lanes: three requests of the first, one of the second, which waits for the first.
Step small_step() {
  Step step;
  step.lanes = {{.key = 7, .period = 3, .marks = {0}}, {.key = 9, .period = 1, .marks = {}}};
  step.requests = {
      {.bytes = 100, .lane = 0, .birth = 0, .length = 1, .block = 11},
      {.bytes = 64, .lane = 1, .birth = 0, .length = 1, .block = 12},
      {.bytes = 1, .lane = 0, .birth = 1, .length = 3, .block = 13},
      {.bytes = 500, .lane = 0, .birth = 2, .length = 3, .planned = false, .block = 14},
  };
  step.edges = {{0, 2, 1, 0, 0}};
  step.first_tick = 0;
  step.last_tick = 100;
  return step;
}

Trace trace_of(const std::vector<std::pair<trace::ThreadId, trace::Event>>& events) {
  Trace trace;
  trace.strings = {"", "layer1", "forward", "aten::mm", "aten::empty"};
  for (const auto& [thread, event] : events) {
    trace.entries.push_back(
        {.tick = trace.entries.size(), .time_ns = 0, .thread = thread, .event = event});
  }
  return trace;
}

std::string error_of(const Step& step, Bytes alignment = 64) {
  try {
    (void)skeleton(step, Trace{}, alignment);
  } catch (const Error& error) {
    REQUIRE(error.kind() == ErrorKind::kUsage);
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("A skeleton holds the requests of each lane in order", "[plan][step]") {
  const Step step = small_step();
  Trace trace;
  trace.program.tag = std::string("t");
  const Plan plan = skeleton(step, trace, 64);
  REQUIRE(plan.program == trace.program);
  REQUIRE(plan.lane_keys == std::vector<std::uint64_t>{7, 9});
  REQUIRE(plan.sequences.size() == 2);
  REQUIRE(plan.sequences[0].period == 3);
  REQUIRE(plan.sequences[0].marks == std::vector<std::uint32_t>{0});
  REQUIRE(plan.sequences[0].slots == std::vector<Slot>{{0, 100, 128, 0, 1, 0},
                                                       {0, 1, 64, 1, 3, 0},
                                                       {Slot::kUnplanned, 500, 512, 2, 3, 0}});
  REQUIRE(plan.edges == std::vector<PlanEdge>{{0, 2, 1, 0, 0}});
}

TEST_CASE("A skeleton becomes a legal plan that covers its step once it has offsets",
          "[plan][step]") {
  const Step step = small_step();
  Plan plan = skeleton(step, Trace{}, 64);
  plan.sequences[0].slots[1].offset = 128;
  plan.sequences[1].slots[0].offset = 192;
  REQUIRE(verify(test::fit(plan), step) == std::nullopt);
}

TEST_CASE("A lane that asks for nothing is not in the plan", "[plan][step]") {
  Step step = small_step();
  step.lanes.insert(step.lanes.begin(), {.key = 3, .period = 0, .marks = {}});
  for (StepRequest& request : step.requests) ++request.lane;
  step.edges = {{0, 0, 1, 0, 0}, {1, 2, 2, 0, 0}};
  Plan plan = skeleton(step, Trace{}, 64);
  REQUIRE(plan.lane_keys == std::vector<std::uint64_t>{7, 9});
  REQUIRE(plan.sequences.size() == 2);
  REQUIRE(plan.sequences[0].lane == 0);
  REQUIRE(plan.edges == std::vector<PlanEdge>{{0, 2, 1, 0, 0}});
  plan.sequences[0].slots[1].offset = 128;
  plan.sequences[1].slots[0].offset = 192;
  REQUIRE(verify(test::fit(plan), step) == std::nullopt);
}

TEST_CASE("A kind of step that asks for nothing is not in the plan", "[plan][kinds]") {
  StepKind kind;
  kind.lane = 5;
  StepKind other = kind;
  other.lane = 6;
  kind.requests = {{.bytes = 64, .length = 1, .seen = 2}};
  StepKind none = kind;
  none.requests.clear();
  const KindPlan kinds = skeleton(std::vector{none, kind, other}, trace::Program{}, 64);
  Plan plan = kinds.plan;
  REQUIRE(plan.lane_keys == std::vector<std::uint64_t>{5});
  REQUIRE(plan.sequences.size() == 1);
  REQUIRE(verify(test::fit(plan)) == std::nullopt);
}

TEST_CASE("Edges that a plan cannot hold are left out", "[plan][step]") {
  Step step = small_step();
  step.edges = {{0, 4, 1, 0, 0}, {0, 0, 1, 2, 0}, {0, 0, 1, 0, 65},
                {0, 0, 0, 1, 0}, {2, 0, 1, 0, 0}, {1, 1, 0, 3, 64}};
  REQUIRE(skeleton(step, Trace{}, 64).edges == std::vector<PlanEdge>{{1, 1, 0, 3, 64}});
}

TEST_CASE(
    "The origin of a slot is the innermost operator of its thread, else a module, else a phase",
    "[plan][step]") {
  using namespace berth::trace;
  const Trace recorded = trace_of({
      {0, RangeBegin{1, 2, RangeKind::kPhase}},
      {0, Request{11, 100, 0, 0}},
      {1, OperatorBegin{.op = 5, .name = 4}},
      {0, RangeBegin{2, 1, RangeKind::kModule}},
      {2, Request{12, 64, 1, 0}},
      {0, OperatorBegin{.op = 6, .name = 3}},
      {0, OperatorBegin{.op = 7, .name = 4}},
      {0, OperatorEnd{7}},
      {0, Request{13, 1, 0, 0}},
      {0, OperatorEnd{6}},
      {0, OperatorEnd{99}},
      {0, Request{14, 500, 0, 0}},
  });
  const Plan plan = skeleton(small_step(), recorded, 64);
  const auto origin = [&](std::size_t sequence, std::size_t slot) {
    return plan.strings[plan.sequences[sequence].slots[slot].origin];
  };
  REQUIRE(origin(0, 0) == "forward");
  REQUIRE(origin(0, 1) == "aten::mm");
  REQUIRE(origin(0, 2) == "layer1");
  REQUIRE(origin(1, 0) == "");
  REQUIRE(plan.strings == std::vector<std::string>{"", "forward", "aten::mm", "layer1"});
}

TEST_CASE("A step that no plan can hold is refused with its reason", "[plan][step]") {
  REQUIRE(error_of(small_step()) == "none");
  REQUIRE(error_of(small_step(), 3) ==
          "a plan aligned to 3, it must be a power of two up to 2097152");
  Step step = small_step();
  step.requests[0].bytes = 0;
  REQUIRE(error_of(step) ==
          "request 0 of the step is for 0 bytes, the limit is 4611686018427387904");
  step = small_step();
  step.requests[0].bytes = kMaxBytes + 1;
  REQUIRE(error_of(step) ==
          "request 0 of the step is for 4611686018427387905 bytes, the limit is "
          "4611686018427387904");
  step = small_step();
  step.requests[1].lane = 2;
  REQUIRE(error_of(step) == "request 1 of the step is of lane 2, which asks for nothing");
  step = small_step();
  step.requests[2].birth = 2;
  REQUIRE(error_of(step) == "request 2 of the step is born at tick 2 of lane 0, its place is 1");
  step = small_step();
  step.requests.pop_back();
  REQUIRE(error_of(step) == "lane 0 of the step has a period of 3 ticks and 2 requests");
}
