// Schedules get addresses that the referee accepts, who knows nothing of how they are found.
#include "csrc/schedule/joint/addresses.h"

#include "csrc/graph/file.h"
#include "csrc/schedule/joint/holes.h"
#include "csrc/schedule/joint/lifetimes.h"
#include "csrc/schedule/offload/from_graph.h"
#include "csrc/schedule/offload/plan.h"
#include "csrc/schedule/offload/to_schedule.h"
#include "csrc/schedule/order/from_graph.h"
#include "csrc/schedule/order/order.h"
#include "tests/catch.h"
#include "tests/schedule/published.h"
#include "tests/support/random_graph.h"
#include "tests/support/random_schedule.h"

#include <berth/error.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <random>
#include <set>

using namespace berth;
using namespace berth::schedule;
using namespace berth::test;
using Catch::Matchers::Contains;
using Kind = graph::ScheduleStep::Kind;

namespace {

// Copies of a byte take 1 ns.
AddressOptions quick() {
  AddressOptions options;
  options.time_limit_seconds = std::numeric_limits<double>::infinity();
  options.iteration_budget = 20;
  options.rates = {1'000'000'000, 1'000'000'000};
  return options;
}

// x (4, input); a = f(x), b = g(a), c = h(x), d = last(a, b, c). A unit is 256 bytes: a has 8, b 2,
// c 6, d 1 unit; g has a workspace of 300 bytes.
graph::Graph small_graph() {
  return graph::parse_graph(R"({"format": "berth-graph 1",
    "storages": [{"bytes": 1024, "class": "input"}, {"bytes": 2048, "class": "step"}, {"bytes": 512, "class": "step"},
                 {"bytes": 1536, "class": "step"}, {"bytes": 256, "class": "step"}],
    "operators": [
      {"name": "f", "phase": "forward", "alternatives": [{"ns": 10, "workspace": 0, "reads": [[0, 0, 0, 1024]], "writes": [[1, 1]]}]},
      {"name": "g", "phase": "forward", "alternatives": [{"ns": 100, "workspace": 300, "reads": [[1, 1, 0, 2048]], "writes": [[2, 1]]}]},
      {"name": "h", "phase": "forward", "alternatives": [{"ns": 1000, "workspace": 0, "reads": [[0, 0, 0, 1024]], "writes": [[3, 1]]}]},
      {"name": "last", "phase": "backward", "alternatives": [{"ns": 10, "workspace": 0, "reads": [[1, 1, 0, 2048], [2, 1, 0, 512], [3, 1, 0, 1536]], "writes": [[4, 1]]}]}]})",
                            "small");
}

graph::ScheduleStep run_of(graph::OperatorId op, std::vector<graph::BufferId> reads,
                           std::vector<graph::BufferId> writes) {
  graph::ScheduleStep step;
  step.op = op;
  step.reads = std::move(reads);
  step.writes = std::move(writes);
  return step;
}

graph::ScheduleStep step_of(Kind kind, graph::BufferId buffer) {
  graph::ScheduleStep step;
  step.kind = kind;
  step.buffer = buffer;
  return step;
}

// a goes to the host after g and comes back before the last one.
graph::Schedule with_a_copy() {
  graph::Schedule schedule;
  schedule.buffers = {{0, {}}, {1, {}}, {2, {}}, {3, {}}, {4, {}}};
  schedule.steps = {run_of(0, {0}, {1}),      run_of(1, {1}, {2}),     step_of(Kind::kOffload, 1),
                    run_of(2, {0}, {3}),      step_of(Kind::kDrop, 0), step_of(Kind::kReload, 1),
                    run_of(3, {1, 2, 3}, {4})};
  return schedule;
}

struct Row {
  graph::BufferId buffer;
  Bytes bytes;
  std::uint64_t birth, end;
  friend bool operator==(const Row&, const Row&) = default;
};
std::vector<Row> rows(const Lifetimes& lifetimes) {
  std::vector<Row> rows;
  for (const Lifetimes::One& one : lifetimes.all)
    rows.push_back({one.buffer, one.bytes, one.birth, one.end});
  return rows;
}

Bytes bytes_of_inputs(const graph::Graph& graph) {
  Bytes bytes = 0;
  for (const graph::Storage& storage : graph.storages)
    if (storage.kind == graph::StorageClass::kInput) bytes += storage.bytes;
  return bytes;
}

}  // namespace

TEST_CASE("An operator takes a faster alternative where its workspace fits between the addresses",
          "[schedule][addresses][holes]") {
  graph::Graph graph = small_graph();
  // g: 300 bytes in 100 ns as it is; two alternatives more.
  graph::Alternative taken = graph.operators[1].alternatives[0];
  taken.workspace = 1024;
  taken.ns = 60;
  graph.operators[1].alternatives.push_back(taken);
  taken.workspace = 4096;
  taken.ns = 20;
  graph.operators[1].alternatives.push_back(taken);
  std::vector<graph::OperatorId> order = {0, 1, 2, 3};
  const auto placed = [&](Bytes capacity) {
    graph::Schedule schedule = graph::schedule_of_order(graph, order);
    place_addresses(graph, schedule, quick());
    const Bytes arena = schedule.arena_bytes;
    const graph::Verdict before = graph::replay(graph, schedule);
    const std::size_t changed = use_holes(graph, schedule, std::max(capacity, arena));
    const graph::Verdict after = graph::replay(graph, schedule);
    CHECK(after.violation == "");
    CHECK(schedule.arena_bytes <= std::max(capacity, arena));
    CHECK((changed > 0) == (after.ns < before.ns));
    return before.ns - after.ns;
  };
  // x, a and b are alive beside it, 3584 bytes; later x, a, b and c are, 5120.
  CHECK(placed(0) == 40);
  CHECK(placed(3584 + 4096 - 1) == 40);
  CHECK(placed(5120 + 4096) == 80);
}

TEST_CASE("Faster alternatives in holes are legal, whatever the schedule",
          "[schedule][addresses][holes]") {
  std::mt19937 random(3);
  int faster = 0;
  for (int k = 0; k < 400; ++k) {
    CAPTURE(k);
    graph::Graph graph = random_graph(random, 2 + random() % 10);
    for (graph::Operator& op : graph.operators) {
      graph::Alternative taken = op.alternatives[0];
      taken.ns = taken.ns / 2;
      taken.workspace += 1 + random() % 2000;
      op.alternatives.push_back(taken);
    }
    auto made = RandomSchedule(random, graph, k % 2 == 0).make(false);
    if (!made) continue;
    graph::Schedule& schedule = *made;
    const AddressOptions how = quick();
    place_addresses(graph, schedule, how);
    const graph::Verdict before = graph::replay(graph, schedule, how.rates);
    const Bytes capacity = schedule.arena_bytes + random() % 4000;
    const std::size_t changed = use_holes(graph, schedule, capacity, how.rates);
    const graph::Verdict after = graph::replay(graph, schedule, how.rates);
    REQUIRE(after.violation == "");
    REQUIRE(schedule.arena_bytes <= capacity);
    REQUIRE((changed == 0 ? after.ns == before.ns : after.ns < before.ns));
    faster += changed > 0 ? 1 : 0;
  }
  REQUIRE(faster > 50);
}

TEST_CASE("What is copied out keeps its bytes until the copy has ended", "[schedule][addresses]") {
  const graph::Graph graph = small_graph();
  graph::Schedule schedule = with_a_copy();
  constexpr graph::BufferId kWorkspace = Lifetimes::One::kWorkspace;
  // The copy takes 2048 ns and h 1000: it has not ended when the buffer comes back.
  std::vector<Row> expected = {{0, 1024, 0, 10},        {1, 2048, 2, 16}, {2, 512, 4, 16},
                               {kWorkspace, 300, 4, 5}, {3, 1536, 8, 16}, {1, 2048, 12, 14},
                               {4, 256, 14, 16}};
  // It is gone when its copy in has ended, for which the last operator waits.
  expected[1].end = 14;
  expected[5].end = 16;
  const Lifetimes slow = lifetimes_of(graph, schedule, {1'000'000'000, 1'000'000'000});
  CHECK(rows(slow) == expected);
  CHECK(slow.live_peak == 2048 + 512 + 1536 + 2048);
  // A copy that takes 1000 ns ends with h.
  expected[1].end = 10;
  CHECK(rows(lifetimes_of(graph, schedule, {2'048'000'000, 1'000'000'000})) == expected);
}

TEST_CASE("A drop waits for the copy in, and copies out end meanwhile", "[schedule][addresses]") {
  const graph::Graph graph = small_graph();
  graph::Schedule schedule;
  schedule.buffers = {{0, {}}, {1, {}}, {2, {}}, {3, {}}, {4, {}}, {1, {}}};
  schedule.steps = {run_of(0, {0}, {1}),        run_of(1, {1}, {2}),
                    step_of(Kind::kOffload, 1), step_of(Kind::kReload, 1),
                    step_of(Kind::kOffload, 2), step_of(Kind::kDrop, 1),
                    run_of(2, {0}, {3}),        run_of(0, {0}, {5}),
                    step_of(Kind::kReload, 2),  run_of(3, {5, 2, 3}, {4})};
  REQUIRE(graph::replay(graph, schedule).violation == "");
  const Lifetimes lifetimes = lifetimes_of(graph, schedule, {1'000'000'000, 1'000'000'000});
  const auto first = std::find_if(lifetimes.all.begin(), lifetimes.all.end(),
                                  [](const Lifetimes::One& one) { return one.buffer == 2; });
  REQUIRE(first != lifetimes.all.end());
  CHECK(first->end == 2 * 5 + 2);
}

TEST_CASE("A copy out waits for the copy in before it", "[schedule][addresses]") {
  graph::Graph graph = small_graph();
  graph.operators[2].alternatives[0].ns = 5000;
  graph::Schedule schedule = with_a_copy();
  const graph::ScheduleStep out = step_of(Kind::kOffload, 1), in = step_of(Kind::kReload, 1);
  schedule.steps.insert(schedule.steps.begin() + 3, {in, out});
  REQUIRE(graph::replay(graph, schedule).violation == "");
  // Out to 2158 ns, in to 4206, out to 6254; h ends at 5110.
  const Lifetimes lifetimes = lifetimes_of(graph, schedule, {1'000'000'000, 1'000'000'000});
  std::vector<std::uint64_t> ends;
  for (const Lifetimes::One& one : lifetimes.all)
    if (one.buffer == 1) ends.push_back(one.end);
  CHECK(ends == std::vector<std::uint64_t>{2 * 6 + 2, 2 * 8 + 2, 2 * 9 + 2});
}

TEST_CASE("A write waits for the copy in of what it writes over", "[schedule][addresses]") {
  graph::Graph graph = small_graph();
  graph::Alternative& last = graph.operators[3].alternatives[0];
  last.reads.erase(last.reads.begin(), last.reads.begin() + 2);
  last.writes.push_back({1, 2});
  graph::Schedule schedule = with_a_copy();
  schedule.steps = {run_of(0, {0}, {1}),        run_of(1, {1}, {2}),
                    step_of(Kind::kOffload, 1), step_of(Kind::kOffload, 2),
                    step_of(Kind::kReload, 1),  run_of(2, {0}, {3}),
                    run_of(3, {3}, {4, 1})};
  REQUIRE(graph::replay(graph, schedule).violation == "");
  // Out to 2158 and 2670 ns, in to 4206; h ends at 1110.
  const Lifetimes lifetimes = lifetimes_of(graph, schedule, {1'000'000'000, 1'000'000'000});
  for (const Lifetimes::One& one : lifetimes.all)
    if (one.buffer == 2) CHECK(one.end == 2 * 6 + 2);
}

TEST_CASE("Under a budget a birth has the bytes that it waits for", "[schedule][addresses]") {
  const graph::Graph graph = small_graph();
  graph::Schedule schedule = with_a_copy();
  // h would need 5120 bytes beside the copy of a.
  schedule.budget = 2048 + 512 + 1536 + 256;
  AddressOptions options = quick();
  const graph::Verdict waiting = graph::replay(graph, schedule, options.rates);
  REQUIRE(waiting.violation == "");
  REQUIRE(waiting.ns == 10 + 100 + 2048 + 1000 + 2048 + 10);
  const Addresses addresses = place_addresses(graph, schedule, options);
  CHECK(addresses.live_peak == schedule.budget);
  CHECK(addresses.arena_bytes == schedule.budget);
  const graph::Verdict verdict = graph::replay(graph, schedule, options.rates);
  CHECK(verdict.violation == "");
  CHECK(verdict.ns == waiting.ns);
}

TEST_CASE("Addresses are as aligned as the sizes of the storages", "[schedule][addresses]") {
  std::mt19937 random(6);
  int made = 0;
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    graph::Graph graph = random_graph(random, 2 + random() % 20);
    for (graph::Storage& storage : graph.storages) storage.bytes *= 64;
    for (graph::Operator& op : graph.operators)
      for (graph::Alternative& taken : op.alternatives) {
        for (graph::Read& read : taken.reads) read.bytes *= 64;
        taken.workspace = random() % 300;
      }
    std::optional<graph::Schedule> schedule = RandomSchedule(random, graph, true).make(false);
    if (!schedule) continue;
    ++made;
    const Addresses addresses = place_addresses(graph, *schedule, quick());
    CHECK(addresses.arena_bytes >= addresses.bound);
    CHECK(graph::replay(graph, *schedule).violation == "");
    for (const graph::Buffer& buffer : schedule->buffers)
      for (const Bytes offset : buffer.offsets) CHECK(offset % 64 == 0);
    for (const graph::ScheduleStep& step : schedule->steps)
      if (step.workspace_offset != graph::Buffer::kNoOffset) CHECK(step.workspace_offset % 64 == 0);
  }
  CHECK(made > 60);
}

TEST_CASE("A storage without bytes has an address, too", "[schedule][addresses]") {
  graph::Graph graph = small_graph();
  graph.storages[2].bytes = 0;
  for (graph::Operator& op : graph.operators)
    for (graph::Read& read : op.alternatives[0].reads)
      if (read.value.storage == 2) read.bytes = 0;
  REQUIRE(graph::violation(graph) == "");
  graph::Schedule schedule = with_a_copy();
  place_addresses(graph, schedule, quick());
  CHECK(schedule.buffers[2].offsets == std::vector<Bytes>{0});
  CHECK(graph::replay(graph, schedule).violation == "");
}

TEST_CASE("What is copied out has a place on the host until it is back", "[schedule][addresses]") {
  const graph::Graph graph = small_graph();
  graph::Schedule schedule;
  schedule.buffers = {{0, {}}, {1, {}}, {2, {}}, {3, {}}, {4, {}}, {1, {}}};
  // a goes to the host and comes back, each way in 2048 ns; then b goes.
  schedule.steps = {run_of(0, {0}, {1}),        run_of(1, {1}, {2}),
                    step_of(Kind::kOffload, 1), step_of(Kind::kReload, 1),
                    step_of(Kind::kDrop, 1),    run_of(2, {0}, {3}),
                    run_of(0, {0}, {5}),        step_of(Kind::kOffload, 2),
                    step_of(Kind::kReload, 2),  run_of(3, {5, 2, 3}, {4})};
  const auto place = [&] {
    const Addresses addresses = place_addresses(graph, schedule, quick());
    const graph::Verdict verdict = graph::replay(graph, schedule, quick().rates);
    REQUIRE(verdict.violation == "");
    CHECK(verdict.host_arena == addresses.host_bytes);
    CHECK(schedule.host_bytes == addresses.host_bytes);
    CHECK(addresses.host_bytes == addresses.host_peak);
    return addresses.host_bytes;
  };
  // The drop waits until a is back, so that b takes its bytes.
  CHECK(place() == 2048);
  const Lifetimes waited = lifetimes_of(graph, schedule, quick().rates);
  REQUIRE(waited.host.size() == 2);
  CHECK(waited.host[0].step == 2);
  CHECK(waited.host[0].end == 2 * 7 + 2);
  CHECK(waited.host[1].birth == 2 * 7 + 2);
  // Without that wait b leaves while a still comes back.
  std::rotate(schedule.steps.begin() + 4, schedule.steps.begin() + 5, schedule.steps.begin() + 9);
  CHECK(place() == 2048 + 512);
}

TEST_CASE("Addresses that were there before are forgotten", "[schedule][addresses]") {
  const graph::Graph graph = small_graph();
  graph::Schedule once = with_a_copy();
  place_addresses(graph, once, quick());
  graph::Schedule again = once;
  place_addresses(graph, again, quick());
  CHECK(again == once);
}

TEST_CASE("The referee accepts the addresses of random schedules and sees no other wait",
          "[schedule][addresses][referee]") {
  const auto seed = static_cast<std::uint32_t>(GENERATE(3, 4));
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::size_t made = 0, again = 0, copied = 0, budgeted = 0, tight = 0, rougher = 0, stopped = 0;
  const std::atomic<bool> cancelled{true};
  for (int round = 0; round < 4000; ++round) {
    CAPTURE(round);
    const graph::Graph graph = random_graph(random, 2 + random() % 25);
    std::optional<graph::Schedule> schedule =
        RandomSchedule(random, graph, round % 2 == 0).make(random() % 4 == 0);
    if (!schedule) continue;
    graph::Schedule bare = *schedule;
    for (graph::Buffer& buffer : bare.buffers) buffer.offsets.clear();
    for (graph::ScheduleStep& step : bare.steps)
      step.workspace_offset = step.host_offset = graph::Buffer::kNoOffset;
    bare.arena_bytes = bare.host_bytes = 0;
    AddressOptions options = quick();
    options.rates = {1 + random() % 1'000'000'000, 1 + random() % 1'000'000'000};
    const graph::Verdict before = graph::replay(graph, bare, options.rates);
    REQUIRE(before.violation == "");
    ++made;
    again += before.recomputed > 0;
    copied += before.offloaded_bytes > 0;

    const Addresses addresses = place_addresses(graph, *schedule, options);
    const graph::Verdict after = graph::replay(graph, *schedule, options.rates);
    REQUIRE(after.violation == "");
    REQUIRE(after.arena == addresses.arena_bytes);
    REQUIRE(after.host_arena == addresses.host_bytes);
    // Residents have no place in the host's arena.
    std::set<graph::BufferId> moved;
    for (const graph::ScheduleStep& step : schedule->steps)
      if (step.kind != Kind::kRun && graph.storages[schedule->buffers[step.buffer].storage].kind ==
                                         graph::StorageClass::kResident)
        moved.insert(step.buffer);
    Bytes residents = 0;
    for (const graph::BufferId one : moved)
      residents += graph.storages[schedule->buffers[one].storage].bytes;
    REQUIRE(addresses.host_peak + residents >= after.host_peak);
    REQUIRE(schedule->arena_bytes == addresses.arena_bytes);
    REQUIRE(after.ns == before.ns);
    REQUIRE(after.peak == before.peak);
    const Bytes most = std::max(before.peak - before.resident, bytes_of_inputs(graph));
    REQUIRE(addresses.live_peak <= most);
    if (moved.empty()) REQUIRE(addresses.live_peak == most);
    REQUIRE(addresses.bound >= addresses.live_peak);
    REQUIRE(addresses.arena_bytes >= addresses.bound);
    options.capacity = kMaxBytes;  // the first will do
    graph::Schedule first = *schedule;
    rougher += place_addresses(graph, first, options).arena_bytes > addresses.arena_bytes;
    options.capacity.reset();
    options.cancel = &cancelled;
    const Bytes stopped_at = place_addresses(graph, first, options).arena_bytes;
    REQUIRE(graph::replay(graph, first, options.rates).violation == "");
    stopped += stopped_at > addresses.arena_bytes;
    tight += addresses.arena_bytes == addresses.bound;
    // Nothing lies outside the arena.
    for (const graph::ScheduleStep& step : schedule->steps)
      if (step.kind == Kind::kRun &&
          graph.operators[step.op].alternatives[step.alternative].workspace != 0)
        REQUIRE(step.workspace_offset != graph::Buffer::kNoOffset);

    options.cancel = nullptr;
    // A budget that makes some births wait.
    bare.budget = std::max<Bytes>(1, before.peak - std::min<Bytes>(before.peak, random() % 6));
    const graph::Verdict waiting = graph::replay(graph, bare, options.rates);
    if (!waiting.violation.empty()) {
      REQUIRE_THROWS_AS(place_addresses(graph, bare, options), Error);
      continue;
    }
    const Addresses within = place_addresses(graph, bare, options);
    REQUIRE(before.resident + within.live_peak <=
            std::max(bare.budget, before.resident + bytes_of_inputs(graph)));
    bare.budget = std::max(bare.budget, before.resident + residents + within.arena_bytes);
    const graph::Verdict fitted = graph::replay(graph, bare, options.rates);
    REQUIRE(fitted.violation == "");
    REQUIRE(fitted.ns <= waiting.ns);
    budgeted += waiting.ns > before.ns;
  }
  CHECK(made > 800);
  CHECK(again > 100);
  CHECK(copied > 300);
  CHECK(budgeted > 20);
  CHECK(tight > made * 9 / 10);
  CHECK(rougher > 0);
  CHECK(stopped > 0);
}

TEST_CASE("A capacity that is met ends the search for addresses", "[schedule][addresses]") {
  const graph::Graph graph = small_graph();
  graph::Schedule schedule = with_a_copy();
  AddressOptions options = quick();
  options.capacity = 1 << 20;
  CHECK(place_addresses(graph, schedule, options).arena_bytes <= 1 << 20);
  // One that cannot be met is no error: the arena is larger.
  options.capacity = 1;
  int calls = 0;
  options.progress = [&calls](const PlaceProgress&) { ++calls; };
  const Addresses addresses = place_addresses(graph, schedule, options);
  CHECK(calls > 0);
  CHECK(addresses.arena_bytes >= addresses.bound);
  CHECK(graph::replay(graph, schedule, options.rates).violation == "");
}

TEST_CASE("An arena whose births wait for copies holds less than is alive",
          "[schedule][addresses]") {
  const graph::Graph graph = small_graph();
  const graph::CopyRates rates = quick().rates;
  graph::Schedule schedule = with_a_copy();
  const Lifetimes lifetimes = lifetimes_of(graph, schedule, rates);
  CHECK_FALSE(all_placed(lifetimes, schedule));
  place_addresses(graph, schedule, quick());
  CHECK(all_placed(lifetimes, schedule));
  // c in the place of a, which is still being copied out.
  schedule.buffers = {{0, {0}}, {1, {1024, 3584}}, {2, {3072}}, {3, {1024}}, {4, {0}}};
  schedule.steps[1].workspace_offset = 3584;
  schedule.arena_bytes = 3584 + 2048;
  REQUIRE(graph::replay(graph, schedule, rates).violation == "");
  CHECK_FALSE(all_placed(lifetimes, schedule));
  schedule.arena_bytes = lifetimes.live_peak;
  CHECK(all_placed(lifetimes, schedule));
  schedule.steps[1].workspace_offset = graph::Buffer::kNoOffset;
  CHECK_FALSE(all_placed(lifetimes, schedule));
}

TEST_CASE("A schedule that is not legal gets no addresses", "[schedule][addresses]") {
  const graph::Graph graph = small_graph();
  graph::Schedule schedule = with_a_copy();
  schedule.steps.pop_back();
  REQUIRE_THROWS_WITH(place_addresses(graph, schedule, quick()),
                      Contains("operator 3 (last) is never run"));
  schedule = with_a_copy();
  schedule.steps[3].op = 77;
  REQUIRE_THROWS_WITH(place_addresses(graph, schedule, quick()), Contains("there are 4"));
}

#ifdef BERTH_TEST_ZLIB
TEST_CASE("The arena of published graphs in their best order is its bound",
          "[schedule][addresses][acceptance]") {
  for (const char* name : {"dnn_partitioning/OperatorGraphs__bert_L-12_training",
                           "dnn_partitioning/OperatorGraphs__bert_l-3_training",
                           "dnn_partitioning/LayerGraphs__inceptionv3_training"}) {
    CAPTURE(name);
    const graph::Graph graph = kept_graph(name);
    OrderOptions order;
    order.time_limit_seconds = std::numeric_limits<double>::infinity();
    order.iteration_budget = 20'000;
    const OrderResult best = plan_order(order_problem(graph), order);
    graph::Schedule schedule = graph::schedule_of_order(graph, best.order);
    AddressOptions options = quick();
    options.iteration_budget = 2000;
    const Addresses addresses = place_addresses(graph, schedule, options);
    const graph::Verdict verdict = graph::replay(graph, schedule);
    REQUIRE(verdict.violation == "");
    CHECK(verdict.peak == best.peak);
    CHECK(addresses.live_peak == verdict.peak - verdict.resident);
    CHECK(addresses.arena_bytes == addresses.bound);
    CHECK(addresses.arena_bytes == addresses.live_peak);
  }
}

TEST_CASE("A planned step with copies fits its budget with its addresses",
          "[schedule][addresses][acceptance]") {
  int copied = 0;
  for (const char* name : {"pipedream/vgg16", "pipedream/squeezenet1_0", "pipedream/resnet50"})
    for (const Bytes percent : {80, 60}) {
      CAPTURE(name, percent);
      const graph::Graph graph = kept_graph(name);
      const offload::Problem problem = offload::from_graph(graph);
      offload::Machine machine;
      offload::OffloadOptions copies;
      copies.time_limit_seconds = std::numeric_limits<double>::infinity();
      copies.iteration_budget = 1000;
      copies.engine = "keep";
      const Bytes kept = offload::plan_offload(problem, machine, copies).kept_peak;
      machine.budget = problem.constant + (kept - problem.constant) / 100 * percent;
      copies.engine = "auto";
      const offload::OffloadResult found = offload::plan_offload(problem, machine, copies);
      graph::Schedule schedule = offload::to_schedule(graph, problem, found.plan, found.outcome);
      schedule.budget = machine.budget;
      const graph::Verdict bare = graph::replay(graph, schedule);
      REQUIRE(bare.violation == "");
      AddressOptions options = quick();
      options.rates = {};
      options.capacity = schedule.budget - bare.resident;
      const Addresses addresses = place_addresses(graph, schedule, options);
      const graph::Verdict placed = graph::replay(graph, schedule);
      CHECK(placed.violation == "");
      CHECK(placed.ns <= bare.ns);
      CHECK(addresses.arena_bytes == addresses.live_peak);
      copied += placed.offloaded_bytes > 0;
    }
  CHECK(copied >= 4);
}
#endif  // BERTH_TEST_ZLIB
