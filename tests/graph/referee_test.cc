#include "csrc/graph/file.h"
#include "csrc/graph/hash.h"
#include "tests/catch.h"
#include "tests/support/random_schedule.h"

#include <berth/error.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

using namespace berth;
using namespace berth::graph;
using namespace berth::test;
using Catch::Matchers::Contains;
using Kind = ScheduleStep::Kind;

namespace {

ScheduleStep run_of(OperatorId op, std::vector<BufferId> reads, std::vector<BufferId> writes,
                    std::uint32_t alternative = 0) {
  ScheduleStep step;
  step.op = op;
  step.alternative = alternative;
  step.reads = std::move(reads);
  step.writes = std::move(writes);
  return step;
}

ScheduleStep step_of(Kind kind, BufferId buffer) {
  ScheduleStep step;
  step.kind = kind;
  step.buffer = buffer;
  return step;
}

// w (64, resident) and x (100, input); a = f(w, x), b = g(a), a += x, c = h(a', b), w' = u(c, w).
// a has 80 bytes, b 40, c 20; by its other alternative g writes b over a.
Graph small_graph() {
  return parse_graph(R"({"format": "berth-graph 1",
    "storages": [{"bytes": 64, "class": "resident"}, {"bytes": 100, "class": "input"}, {"bytes": 80, "class": "step"},
                 {"bytes": 40, "class": "step"}, {"bytes": 20, "class": "step"}],
    "operators": [
      {"name": "f", "phase": "forward", "alternatives": [{"ns": 10, "workspace": 7, "reads": [[0, 0, 0, 64], [1, 0, 0, 100]], "writes": [[2, 1]]}]},
      {"name": "g", "phase": "forward", "alternatives": [
        {"ns": 20, "workspace": 0, "reads": [[2, 1, 0, 80]], "writes": [[3, 1]]},
        {"ns": 20, "workspace": 0, "reads": [[2, 1, 0, 80]], "writes": [[3, 1]], "in_place": [[[2, 1], [3, 1]]]}]},
      {"name": "add_", "phase": "backward", "alternatives": [{"ns": 5, "workspace": 0, "reads": [[2, 1, 0, 80], [1, 0, 0, 100]], "writes": [[2, 2]]}]},
      {"name": "h", "phase": "backward", "traits": ["random"], "alternatives": [{"ns": 30, "workspace": 0, "reads": [[2, 2, 0, 80], [3, 1, 0, 40]], "writes": [[4, 1]]}]},
      {"name": "u", "phase": "optimizer", "traits": ["changes_state"], "alternatives": [{"ns": 2, "workspace": 0, "reads": [[4, 1, 0, 20], [0, 0, 0, 64]], "writes": [[0, 1]]}]}]})",
                     "small");
}

// Runs f again and takes b in place of the first a. Buffers: w, x, a, a again (holds a'), c.
Schedule small_schedule() {
  Schedule schedule;
  schedule.buffers = {{0, {}}, {1, {0}}, {2, {100}}, {2, {180}}, {4, {0}}};
  schedule.arena_bytes = 260;
  schedule.steps = {run_of(0, {0, 1}, {2}),    // 0
                    run_of(1, {2}, {2}, 1),    // 1
                    run_of(0, {0, 1}, {3}),    // 2
                    run_of(2, {3, 1}, {3}),    // 3
                    step_of(Kind::kDrop, 1),   // 4
                    run_of(3, {3, 2}, {4}),    // 5
                    step_of(Kind::kDrop, 2),   // 6
                    step_of(Kind::kDrop, 3),   // 7
                    run_of(4, {4, 0}, {0}),    // 8
                    step_of(Kind::kDrop, 4)};  // 9
  return schedule;
}

std::string violation_of(const std::function<void(Schedule&)>& change) {
  Schedule schedule = small_schedule();
  change(schedule);
  return replay(small_graph(), schedule).violation;
}

}  // namespace

TEST_CASE("A legal schedule has the peak and the times of its steps", "[graph][referee]") {
  const Verdict verdict = replay(small_graph(), small_schedule());
  REQUIRE(verdict.violation == "");
  CHECK(verdict.live == std::vector<Bytes>{64 + 100 + 80 + 7, 244, 64 + 100 + 160 + 7, 324, 224,
                                           244, 164, 84, 84, 64});
  CHECK(verdict.peak == 331);
  CHECK(verdict.peak_step == 2);
  CHECK(verdict.resident == 64);
  CHECK(verdict.arena == 260);
  CHECK(verdict.compute_ns == 77);
  CHECK(verdict.recomputed == 1);
  CHECK(verdict.recomputed_ns == 10);
  CHECK(verdict.ns == 77);
  CHECK(verdict.offloaded_bytes == 0);
}

TEST_CASE("A resident may be on the host between its uses", "[graph][referee]") {
  // It is read by step 0, and 2 ns at the end write it.
  Schedule schedule = small_schedule();
  const auto insert = [&](std::ptrdiff_t at, Kind kind) {
    schedule.steps.insert(schedule.steps.begin() + at, step_of(kind, 0));
  };
  insert(10, Kind::kOffload);
  insert(8, Kind::kReload);
  insert(3, Kind::kOffload);
  insert(0, Kind::kReload);
  const CopyRates rates{Bytes{8} * 1'000'000'000, Bytes{16} * 1'000'000'000};
  const Verdict verdict = replay(small_graph(), schedule, rates);
  REQUIRE(verdict.violation == "");
  CHECK(verdict.resident == 0);
  CHECK(verdict.host_peak == 64);
  // The first copy out finds the same bytes on the host.
  CHECK(verdict.offloaded_bytes == 64);
  CHECK(verdict.reloaded_bytes == 128);
  CHECK(verdict.peak == 331);
  CHECK(verdict.live[5] == 324 - 64);
  // It comes 4 ns before the first operator, and again behind the last but one; it leaves in 8 ns.
  CHECK(verdict.ns == 4 + 77 + 4 + 8);
  schedule.budget = 64 + 260 + 7;
  CHECK(replay(small_graph(), schedule, rates).violation == "");
}

TEST_CASE("Each kind of damage to a schedule is named", "[graph][referee]") {
  CHECK(violation_of([](Schedule&) {}) == "");
  const struct {
    const char* what;
    std::function<void(Schedule&)> change;
    const char* message;
  } cases[] = {
      {"a read before its value is made", [](Schedule& s) { std::swap(s.steps[0], s.steps[1]); },
       "step 0: operator 1 (g) reads version 1 of storage 2 in buffer 2, which is not made yet"},
      {"a read after its bytes were written over",
       [](Schedule& s) { s.steps[3].reads[0] = s.steps[3].writes[0] = 2; },
       "step 3: operator 2 (add_) reads version 1 of storage 2 in buffer 2, which holds version 1 "
       "of storage 3 since step 1"},
      {"a write before what is read there", [](Schedule& s) { std::swap(s.steps[5], s.steps[8]); },
       "step 5: operator 4 (u) reads version 1 of storage 4 in buffer 4, which is not made yet"},
      {"a write over what was to be read", [](Schedule& s) { s.steps[2].writes[0] = 2; },
       "step 2: operator 0 (f) writes version 1 of storage 2 into buffer 2, which holds version 1 "
       "of storage 3 since step 1"},
      {"a buffer that is born twice", [](Schedule& s) { s.steps[1] = s.steps[0]; },
       "step 1: operator 0 (f) writes version 1 of storage 2 into buffer 2, which holds version 1 "
       "of storage 2 since step 0"},
      {"a write after the drop",
       [](Schedule& s) { s.steps[1] = step_of(Kind::kDrop, 2), s.steps[2].writes[0] = 2; },
       "step 2: operator 0 (f) writes version 1 of storage 2 into buffer 2, which was dropped at "
       "step 1"},
      {"a next version that is made elsewhere", [](Schedule& s) { s.steps[3].writes[0] = 2; },
       "step 3: operator 2 (add_) writes version 2 of storage 2 into buffer 2 and reads version 1 "
       "of storage 2 in buffer 3: one is wanted"},
      {"a result in place that the alternative does not allow",
       [](Schedule& s) { s.steps[1].alternative = 0; },
       "step 1: operator 1 (g) writes version 1 of storage 3 into buffer 2, which holds version 1 "
       "of storage 2 since step 0"},
      {"a birth in a buffer of another storage", [](Schedule& s) { s.steps[1].writes[0] = 4; },
       "step 1: operator 1 (g) writes version 1 of storage 3 into buffer 4, which is of storage 4"},
      {"a drop of nothing", [](Schedule& s) { s.steps[1] = step_of(Kind::kDrop, 3); },
       "step 1: the schedule drops buffer 3, which is not made yet"},
      {"a second drop", [](Schedule& s) { s.steps.push_back(s.steps[9]); },
       "step 10: the schedule drops buffer 4, which was dropped at step 9"},
      {"a drop of a resident", [](Schedule& s) { s.steps[9].buffer = 0; },
       "step 9: the schedule drops buffer 0 of storage 0, which is resident"},
      {"a resident that does not come back",
       [](Schedule& s) { s.steps[9] = step_of(Kind::kOffload, 0); },
       "at the end buffer 0, which was offloaded at step 9, and the resident began on the device"},
      {"a resident that comes and stays",
       [](Schedule& s) { s.steps.insert(s.steps.begin(), step_of(Kind::kReload, 0)); },
       "at the end buffer 0, which holds version 1 of storage 0 since step 9, and the resident "
       "began on the host"},
      {"a resident that is used while it is away",
       [](Schedule& s) { s.steps[7] = step_of(Kind::kOffload, 0); },
       "step 8: operator 4 (u) reads version 0 of storage 0 in buffer 0, which was offloaded at "
       "step 7"},
      {"a resident with a place on the host",
       [](Schedule& s) {
         s.host_bytes = 64;
         s.steps[9] = step_of(Kind::kOffload, 0), s.steps[9].host_offset = 0;
       },
       "step 9: the schedule gives buffer 0 a place on the host, storage 0 is resident"},
      {"a read of what is away", [](Schedule& s) { s.steps[4] = step_of(Kind::kOffload, 3); },
       "step 5: operator 3 (h) reads version 2 of storage 2 in buffer 3, which was offloaded at "
       "step 4"},
      {"a write over what is being copied out",
       [](Schedule& s) { s.steps[1] = step_of(Kind::kOffload, 2), s.steps[2].writes[0] = 2; },
       "step 2: operator 0 (f) writes version 1 of storage 2 into buffer 2, which was offloaded "
       "at step 1"},
      {"a copy in of what is there", [](Schedule& s) { s.steps[4] = step_of(Kind::kReload, 3); },
       "step 4: the schedule reloads buffer 3, which holds version 2 of storage 2 since step 3"},
      {"a random operator that runs again",
       [](Schedule& s) { s.steps.insert(s.steps.begin() + 6, s.steps[5]); },
       "step 6: operator 3 (h) is recomputed: it is random"},
      {"an update that runs again",
       [](Schedule& s) { s.steps.insert(s.steps.begin() + 9, s.steps[8]); },
       "step 9: operator 4 (u) is recomputed: it changes state"},
      {"an operator that is forgotten", [](Schedule& s) { s.steps.erase(s.steps.begin() + 8); },
       "operator 4 (u) is never run"},
      {"bytes of two that are alive", [](Schedule& s) { s.buffers[3].offsets[0] = 179; },
       "step 2: operator 0 (f) puts buffer 3 at bytes 179 to 259 of the arena, where buffer 2 has "
       "bytes 100 to 180"},
      {"bytes of a workspace and one that is alive",
       [](Schedule& s) { s.steps[0].workspace_offset = 90; },
       "step 0: operator 0 (f) puts its workspace at bytes 90 to 97 of the arena, where buffer 1 "
       "has bytes 0 to 100"},
      {"bytes behind the arena", [](Schedule& s) { s.arena_bytes = 259; },
       "step 2: operator 0 (f) puts the 80 bytes of buffer 3 at 180 of an arena of 259"},
      {"a birth without a place",
       [](Schedule& s) {
         s.steps[9] = step_of(Kind::kOffload, 4), s.steps.push_back(step_of(Kind::kReload, 4));
       },
       "step 10: the schedule has no place for birth 2 of buffer 4, there are 1"},
      {"a resident in the arena", [](Schedule& s) { s.buffers[0].offsets = {0}; },
       "buffer 0 has a place in the arena, storage 0 is resident"},
      {"more than the budget", [](Schedule& s) { s.budget = 64 + 260 + 6; },
       "step 0: operator 0 (f) needs 331 bytes with the 7 of its workspace, the budget is 330"},
      {"a second buffer of an input",
       [](Schedule& s) {
         s.buffers.push_back({1, {}});
       },
       "buffer 5 is a second one of storage 1, which is there at the beginning"},
      {"no buffer of an input", [](Schedule& s) { s.buffers[1].storage = 2; },
       "storage 1 is there at the beginning and has no buffer"},
      {"a buffer of no storage", [](Schedule& s) { s.buffers[4].storage = 5; },
       "buffer 4 is of storage 5, there are 5"},
      {"a read of no buffer", [](Schedule& s) { s.steps[0].reads[1] = 5; },
       "step 0: operator 0 (f) reads version 0 of storage 1 in buffer 5, there are 5"},
      {"a write into no buffer", [](Schedule& s) { s.steps[0].writes[0] = 5; },
       "step 0: operator 0 (f) writes version 1 of storage 2 into buffer 5, there are 5"},
      {"a drop of no buffer", [](Schedule& s) { s.steps[9].buffer = 5; },
       "step 9: the schedule names buffer 5, there are 5"},
      {"no such operator", [](Schedule& s) { s.steps[0].op = 5; },
       "step 0 runs operator 5, there are 5"},
      {"no such alternative", [](Schedule& s) { s.steps[0].alternative = 1; },
       "step 0: operator 0 (f) runs by alternative 1, it has 1"},
      {"too few buffers", [](Schedule& s) { s.steps[0].reads.pop_back(); },
       "step 0: operator 0 (f) has 1 buffers to read and 1 to write, 2 and 1 are wanted"},
      {"another graph", [](Schedule& s) { s.graph_hash = 7; },
       "the schedule is for the graph 0000000000000007, this one is "},
  };
  for (const auto& [what, change, message] : cases) {
    CAPTURE(what);
    CHECK_THAT(violation_of(change), Catch::Matchers::StartsWith(message));
  }
  // Exactly what is needed is enough.
  CHECK(violation_of([](Schedule& s) { s.budget = 64 + 260 + 7; }) == "");
}

TEST_CASE("Operators that must keep their order do, and residents end as they should",
          "[graph][referee]") {
  Graph graph;
  graph.storages = {{8, StorageClass::kResident, {}}};
  graph.operators.resize(3);
  for (Operator& op : graph.operators) op.alternatives.resize(1);
  const auto verdict_of = [&](std::vector<OperatorId> order) {
    return replay(graph, schedule_of_order(graph, order)).violation;
  };
  CHECK(verdict_of({2, 1, 0}) == "");
  graph.operators[0].traits.random = graph.operators[2].traits.random = true;
  CHECK(
      verdict_of({2, 1, 0}) ==
      "step 2: operator 0 () runs after operator 2 (): random operators keep their recorded order");
  CHECK(verdict_of({1, 0, 2}) == "");
  graph.order = {2, 1, 0};
  CHECK(verdict_of({2, 1, 0}) == "");
  graph.operators[0].traits = {.host_sync = true};
  graph.operators[2].traits = {.collective = true};
  CHECK(verdict_of({2, 1, 0}) == "");
  CHECK(verdict_of({0, 1, 2}) ==
        "step 2: operator 2 () runs after operator 0 (): collectives and what waits for the host "
        "keep their recorded order");
  graph.control = {{1, 0}};
  CHECK(verdict_of({2, 0, 1}) ==
        "step 1: operator 0 () runs before operator 1 (): a control edge forbids that");
  // Two writes to a resident, of which an alternative leaves the second out.
  graph = {};
  graph.storages = {{8, StorageClass::kResident, {}}};
  graph.operators.resize(1);
  graph.operators[0].alternatives.resize(2);
  graph.operators[0].alternatives[0].writes = {{0, 1}};
  Schedule schedule = schedule_of_order(graph, std::vector<OperatorId>{0});
  CHECK(replay(graph, schedule).violation == "");
  schedule.steps[0].alternative = 1;
  schedule.steps[0].writes.clear();
  CHECK(replay(graph, schedule).violation ==
        "at the end buffer 0, which holds version 0 of storage 0 since the beginning, and the "
        "resident must hold version 1 of storage 0");
}

TEST_CASE("Copies run beside operators, one after the other each way", "[graph][referee]") {
  // x (1000 bytes) is read by the first and the last operator, beside b and c (600 bytes each).
  const Graph graph = parse_graph(R"({"format": "berth-graph 1",
    "storages": [{"bytes": 1000, "class": "input"}, {"bytes": 600, "class": "step"}, {"bytes": 600, "class": "step"}],
    "operators": [
      {"name": "a", "phase": "forward", "alternatives": [{"ns": 100, "workspace": 0, "reads": [[0, 0, 0, 1000]], "writes": [[1, 1]]}]},
      {"name": "b", "phase": "forward", "alternatives": [{"ns": 300, "workspace": 0, "reads": [[1, 1, 0, 600]], "writes": [[2, 1]]}]},
      {"name": "c", "phase": "backward", "alternatives": [{"ns": 100, "workspace": 0, "reads": [[2, 1, 0, 600], [0, 0, 0, 1000]], "writes": []}]}]})",
                                  "copies");
  Schedule schedule;
  schedule.buffers = {{0, {}}, {1, {}}, {2, {}}};
  schedule.steps = {run_of(0, {0}, {1}),     step_of(Kind::kOffload, 0), run_of(1, {1}, {2}),
                    step_of(Kind::kDrop, 1), step_of(Kind::kReload, 0),  run_of(2, {2, 0}, {})};
  // 5 bytes a nanosecond out, 10 in: 200 ns and 100 ns.
  const CopyRates rates = {5'000'000'000, 10'000'000'000};
  const Verdict free = replay(graph, schedule, rates);
  REQUIRE(free.violation == "");
  // a 0-100, out 100-300, b 100-400, in 400-500, c 500-600.
  CHECK(free.ns == 600);
  CHECK(free.compute_ns == 500);
  CHECK(free.peak == 2200);  // b begins before x is gone
  CHECK(free.live.back() == 1600);
  CHECK(free.offloaded_bytes == 1000);
  CHECK(free.reloaded_bytes == 1000);
  CHECK(free.host_peak == 1000);
  SECTION("a budget makes a birth wait for the copy out") {
    schedule.budget = 1600;
    const Verdict tight = replay(graph, schedule, rates);
    REQUIRE(tight.violation == "");
    CHECK(tight.peak == 1600);
    CHECK(tight.ns == 800);  // b 300-600, in 600-700, c 700-800
    schedule.budget = 1599;
    CHECK(replay(graph, schedule, rates).violation ==
          "step 0: operator 0 (a) needs 1600 bytes with the 600 of buffer 1, the budget is 1599");
  }
  SECTION("bytes of the arena make a birth wait for the copy out of them") {
    schedule.buffers = {{0, {0, 600}}, {1, {1000}}, {2, {0}}};
    schedule.arena_bytes = 1600;
    const Verdict placed = replay(graph, schedule, rates);
    REQUIRE(placed.violation == "");
    CHECK(placed.ns == 800);
    CHECK(placed.arena == 1600);
  }
  SECTION("a copy in waits for its copy out") {
    std::swap(schedule.steps[2], schedule.steps[4]);  // in before b, and before b is dropped
    std::swap(schedule.steps[3], schedule.steps[4]);
    const Verdict soon = replay(graph, schedule, rates);
    REQUIRE(soon.violation == "");
    CHECK(soon.ns == 500);     // out 100-300, in 300-400 beside b 100-400, c 400-500
    CHECK(soon.peak == 3200);  // the new bytes beside those that are leaving
  }
  SECTION("two copies out go one after the other") {
    schedule.steps.insert(schedule.steps.begin() + 2, step_of(Kind::kOffload, 1));
    schedule.steps.insert(schedule.steps.begin() + 3, step_of(Kind::kReload, 1));
    // x out 100-300, b's input out 300-420 and in 420-480, b 480-780, x in 780-880, c 880-980.
    CHECK(replay(graph, schedule, rates).ns == 980);
  }
  SECTION("what is copied in is copied out again when it is there") {
    schedule.steps.pop_back();
    schedule.steps.push_back(step_of(Kind::kOffload, 0));
    schedule.steps.push_back(run_of(2, {2, 0}, {}));
    schedule.steps.insert(schedule.steps.begin() + 6, step_of(Kind::kReload, 0));
    // out 100-300, in 400-500, out 500-700, in 700-800, c 800-900.
    const Verdict twice = replay(graph, schedule, rates);
    REQUIRE(twice.violation == "");
    CHECK(twice.ns == 900);
    CHECK(twice.offloaded_bytes == 2000);
    CHECK(twice.host_peak == 1000);
  }
  SECTION("copies in go one after the other") {
    schedule.steps.insert(schedule.steps.begin() + 3, step_of(Kind::kOffload, 2));
    schedule.steps.insert(schedule.steps.begin() + 6, step_of(Kind::kReload, 2));
    // x out 100-300, b 100-400, its result out 400-520, x in 400-500, b's in 520-580, c 580-680.
    CHECK(replay(graph, schedule, rates).ns == 680);
    std::swap(schedule.steps[5], schedule.steps[6]);
    // b's in 520-580, x in 580-680, c 680-780.
    CHECK(replay(graph, schedule, rates).ns == 780);
  }
  SECTION("live bytes after a step are without what has left") {
    CHECK(free.live == std::vector<Bytes>{1600, 1600, 2200, 600, 1600, 1600});
  }
  SECTION("a drop waits for the copy in") {
    schedule.steps.insert(schedule.steps.begin() + 5, step_of(Kind::kDrop, 0));
    CHECK_THAT(replay(graph, schedule, rates).violation,
               Contains("buffer 0, which was dropped at step 5"));
  }
  CHECK_THROWS_AS(replay(graph, schedule, {0, 1}), Error);
}

TEST_CASE("What is on the host shares no byte there", "[graph][referee]") {
  // a makes two of 1000 bytes, b runs beside their copies, c reads both.
  const Graph graph = parse_graph(R"({"format": "berth-graph 1",
    "storages": [{"bytes": 1000, "class": "step"}, {"bytes": 1000, "class": "step"}],
    "operators": [
      {"name": "a", "phase": "forward", "alternatives": [{"ns": 100, "workspace": 0, "reads": [], "writes": [[0, 1], [1, 1]]}]},
      {"name": "b", "phase": "forward", "alternatives": [{"ns": 50, "workspace": 0, "reads": [], "writes": []}]},
      {"name": "c", "phase": "backward", "alternatives": [{"ns": 100, "workspace": 0, "reads": [[0, 1, 0, 1000], [1, 1, 0, 1000]], "writes": []}]}]})",
                                  "host");
  Schedule schedule;
  schedule.buffers = {{0, {}}, {1, {}}};
  schedule.steps = {run_of(0, {}, {0, 1}),     step_of(Kind::kOffload, 0),
                    step_of(Kind::kReload, 0), step_of(Kind::kOffload, 1),
                    run_of(1, {}, {}),         step_of(Kind::kReload, 1),
                    run_of(2, {0, 1}, {})};
  schedule.host_bytes = 2000;
  const CopyRates rates = {5'000'000'000, 10'000'000'000};  // 200 ns out, 100 ns in
  const auto at = [&](Bytes first, Bytes second) {
    schedule.steps[1].host_offset = first;
    schedule.steps[3].host_offset = second;
    return replay(graph, schedule, rates);
  };
  const Verdict apart = at(0, 1000);
  REQUIRE(apart.violation == "");
  CHECK(apart.host_arena == 2000);
  CHECK(apart.ns == 700);  // out 100-300, 300-500, in 300-400, 500-600, c 600-700
  // In the bytes of the first the second waits until that is back.
  const Verdict after = at(500, 700);
  REQUIRE(after.violation == "");
  CHECK(after.host_arena == 1700);
  CHECK(after.ns == 800);  // out 100-300, in 300-400, out 400-600, in 600-700, c 700-800
  CHECK(at(Buffer::kNoOffset, 0).ns == 700);  // of one that has no place nothing is asked
  CHECK(at(0, 1001).violation ==
        "step 3: the schedule puts the 1000 bytes of buffer 1 at 1001 of an arena of 2000 on the "
        "host");
  std::swap(schedule.steps[2], schedule.steps[3]);  // both are away at one time
  schedule.steps[1].host_offset = 0;
  schedule.steps[2].host_offset = 999;
  CHECK(replay(graph, schedule, rates).violation ==
        "step 2: the schedule puts buffer 1 at bytes 999 to 1999 of the host's arena, where buffer "
        "0 has bytes 0 to 1000");
}

TEST_CASE("Copies in are waited for by who writes there and by who drops", "[graph][referee]") {
  // a reads x, zero_ writes all of it without a look, last reads nothing.
  const Graph graph =
      parse_graph(R"({"format": "berth-graph 1", "storages": [{"bytes": 1000, "class": "input"}],
    "operators": [
      {"name": "a", "phase": "forward", "alternatives": [{"ns": 100, "workspace": 0, "reads": [[0, 0, 0, 1000]], "writes": []}]},
      {"name": "zero_", "phase": "forward", "alternatives": [{"ns": 10, "workspace": 0, "reads": [], "writes": [[0, 1]]}]},
      {"name": "last", "phase": "forward", "alternatives": [{"ns": 1, "workspace": 0, "reads": [], "writes": []}]}]})",
                  "zeroed");
  const CopyRates rates = {10'000'000'000, 5'000'000'000};  // 100 ns and 200 ns
  Schedule schedule;
  schedule.buffers = {{0, {}}};
  schedule.steps = {run_of(0, {0}, {}), step_of(Kind::kOffload, 0), step_of(Kind::kReload, 0),
                    run_of(1, {}, {0}), step_of(Kind::kDrop, 0),    run_of(2, {}, {})};
  CHECK(replay(graph, schedule, rates).violation == "");
  CHECK(replay(graph, schedule, rates).ns == 100 + 100 + 200 + 10 + 1);
  // zero_ before; the bytes that come in are dropped unread, but not before they are there.
  schedule.steps = {run_of(0, {0}, {}),        run_of(1, {}, {0}),      step_of(Kind::kOffload, 0),
                    step_of(Kind::kReload, 0), step_of(Kind::kDrop, 0), run_of(2, {}, {})};
  CHECK(replay(graph, schedule, rates).ns == 100 + 10 + 100 + 200 + 1);
  // A copy out that nobody waits for is part of the step, and so is a copy in.
  schedule.steps = {run_of(0, {0}, {}), run_of(1, {}, {0}), step_of(Kind::kOffload, 0),
                    run_of(2, {}, {})};
  CHECK(replay(graph, schedule, rates).ns == 100 + 10 + 100);
  schedule.steps.push_back(step_of(Kind::kReload, 0));
  CHECK(replay(graph, schedule, rates).ns == 100 + 10 + 100 + 200);
}

TEST_CASE("Two results do not take the bytes of one input", "[graph][referee]") {
  const Graph graph = parse_graph(R"({"format": "berth-graph 1",
    "storages": [{"bytes": 8, "class": "input"}, {"bytes": 8, "class": "step"}, {"bytes": 8, "class": "step"}],
    "operators": [{"name": "split", "phase": "forward", "alternatives": [{"ns": 1, "workspace": 0, "reads": [[0, 0, 0, 8]],
      "writes": [[1, 1], [2, 1]], "in_place": [[[0, 0], [1, 1]], [[0, 0], [2, 1]], [[1, 1], [2, 1]]]}]}]})",
                                  "split");
  Schedule schedule;
  schedule.buffers = {{0, {}}, {1, {}}, {2, {}}};
  schedule.steps = {run_of(0, {0}, {0, 2})};
  CHECK(replay(graph, schedule).violation == "");
  CHECK(replay(graph, schedule).peak == 16);
  schedule.steps = {run_of(0, {0}, {0, 0})};
  CHECK(replay(graph, schedule).violation ==
        "step 0: operator 0 (split) writes version 1 of storage 2 into buffer 0, which holds "
        "version 1 of storage 1 since step 0");
}

TEST_CASE("A version is written over the one right before it alone", "[graph][referee]") {
  Graph graph;
  graph.storages.resize(1);
  graph.storages[0].bytes = 8;
  graph.storages[0].kind = StorageClass::kStep;
  for (std::uint32_t version = 1; version <= 3; ++version) {
    Operator op;
    op.name = "op";
    op.alternatives.resize(1);
    op.alternatives[0].writes = {{0, version}};
    graph.operators.push_back(op);
  }
  CHECK(
      replay(graph, schedule_of_order(graph, std::vector<OperatorId>{0, 1, 2})).violation.empty());
  CHECK_THAT(replay(graph, schedule_of_order(graph, std::vector<OperatorId>{0, 2, 1})).violation,
             Contains("writes version 3 of storage 0"));
}

TEST_CASE("Figures beyond 64 bits are refused", "[graph][referee]") {
  Graph graph;
  graph.storages = {{kMaxBytes, StorageClass::kStep, {}}};
  graph.operators.resize(1);
  graph.operators[0].alternatives = {
      {.ns = kMaxBytes, .workspace = 0, .reads = {}, .writes = {{0, 1}}, .in_place = {}}};
  Schedule schedule = schedule_of_order(graph, std::vector<OperatorId>{0});
  CHECK(replay(graph, schedule).violation == "");
  schedule.buffers.push_back({0, {}});
  schedule.steps = {run_of(0, {}, {0}), run_of(0, {}, {1})};
  CHECK_THAT(replay(graph, schedule).violation, Contains("bytes on the device, the limit is"));
  schedule.steps.insert(schedule.steps.begin() + 1, step_of(Kind::kDrop, 0));
  CHECK_THAT(replay(graph, schedule).violation, Contains("ns, the limit is"));
  schedule.steps = {run_of(0, {}, {0}), step_of(Kind::kOffload, 0)};
  CHECK_THAT(replay(graph, schedule, {1, 1}).violation, Contains("that takes too long"));
}

TEST_CASE("Equal graphs have equal hashes, and any change another", "[graph][referee]") {
  const Graph graph = small_graph();
  CHECK(hash_of(graph) == hash_of(parse_graph(to_json(graph), "again")));
  const std::function<void(Graph&)> changes[] = {
      [](Graph& g) { g.storages[0].bytes = 65; },
      [](Graph& g) { g.storages[0].kind = StorageClass::kInput; },
      [](Graph& g) { g.storages[0].role = trace::RoleKind::kParameter; },
      [](Graph& g) { g.operators[0].alternatives[0].algorithm = "direct"; },
      [](Graph& g) { g.operators[0].name = "g"; },
      [](Graph& g) { g.operators[0].phase = Phase::kLoss; },
      [](Graph& g) { g.operators[0].traits.random = true; },
      [](Graph& g) { g.operators[0].traits.collective = true; },
      [](Graph& g) { g.operators[0].forward = 0; },
      [](Graph& g) { g.operators[0].alternatives[0].ns = 11; },
      [](Graph& g) { g.operators[0].alternatives[0].workspace = 8; },
      [](Graph& g) { g.operators[0].alternatives[0].reads[0].bytes = 1; },
      [](Graph& g) { g.operators[0].alternatives[0].writes[0].version = 2; },
      [](Graph& g) { g.operators[1].alternatives[1].in_place.clear(); },
      [](Graph& g) { g.operators[1].alternatives.pop_back(); },
      [](Graph& g) {
        g.control = {{0, 1}};
      },
      [](Graph& g) {
        g.order = {0, 1, 2, 3, 4};
      },
  };
  std::set<std::uint64_t> hashes = {hash_of(graph)};
  for (const auto& change : changes) {
    Graph changed = graph;
    change(changed);
    CHECK(hashes.insert(hash_of(changed)).second);
  }
}
