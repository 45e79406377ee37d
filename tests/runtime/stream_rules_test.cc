// What each rule of streams is there for, one case a rule. tests/mutants removes the rules one by
// one.

#include "csrc/runtime/allocator.h"
#include "csrc/runtime/arena.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/lone_arena.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_plan.h"

#include <berth/error.h>

#include <atomic>

using namespace berth;
using berth::test::CallKind;
using berth::test::plan_of;
using berth::test::sequence_of;

namespace {

constexpr Bytes kMiB = Bytes{1} << 20;
const Status kFailure(Status::Code::kFailed, "test", 5);

// Three slots in turn on the same bytes, on lane 0.
const Plan kInTurn = plan_of({sequence_of({{0, 64, 1}, {0, 60, 1}, {0, 50, 1}})});

struct Serving {
  explicit Serving(const Plan& plan = kInTurn) : arena(device, 64) {
    REQUIRE(arena.activate(test::look(plan), Arena::Pages::kNow).ok());
    (void)arena.mark(0);
  }
  ~Serving() {
    CHECK(arena.is_valid() == "");
    CHECK(device.violations().empty());
  }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  void* hit(Bytes size) {
    const Arena::Outcome outcome = arena.allocate(size, 0, 0);
    REQUIRE(outcome.served == Served::kHit);
    CHECK(device.hand_out(0, outcome.pointer, size));
    return outcome.pointer;
  }
  // A request that lane 5 uses too, and whose free comes before lane 5 is done.
  void use_elsewhere(Bytes size) {
    void* const block = hit(size);
    arena.record_use(block, 5);
    device.touch(5, block, size);
    REQUIRE(arena.free(block).found);
  }
  Served served(Bytes size) { return arena.allocate(size, 0, 0).served; }

  test::SimulatedDevice device;
  test::LoneArena arena;
};

Allocator::Options options(const std::atomic<int>* captures = nullptr) {
  Allocator::Options options;
  options.start_threads = false;
  options.captures = captures;
  return options;
}

}  // namespace

TEST_CASE("A second use on another lane is waited for as the first one was", "[arena][streams]") {
  Serving serving;
  serving.use_elsewhere(64);
  serving.use_elsewhere(60);
  serving.hit(50);
}

TEST_CASE("Bytes without an event come free by a synchronisation and by no poll",
          "[arena][streams]") {
  Serving serving;
  void* const block = serving.hit(64);
  serving.arena.record_use(block, 5);
  serving.device.touch(5, block, 64);
  serving.device.fail_call(1, kFailure, CallKind::kRecord);
  REQUIRE(serving.arena.free(block).device_error);
  serving.arena.poll_guards();
  CHECK(serving.served(60) == Served::kMissBusy);
  REQUIRE(serving.device.synchronize_all().ok());
  serving.arena.synchronized();
  serving.hit(50);
}

TEST_CASE("A mark lets go of the guards whose lane is done and of no other", "[arena][streams]") {
  Serving serving;
  serving.use_elsewhere(64);
  (void)serving.arena.mark(0);
  CHECK(serving.device.live_events() == 1);
  serving.hit(64);  // after the guard's event
  REQUIRE(serving.device.synchronize_all().ok());
  (void)serving.arena.mark(0);
  CHECK(serving.device.live_events() == 0);
}

TEST_CASE("A request waits for guards and asks few of them whether they are over",
          "[arena][streams]") {
  // Eight slots beside each other, used by eight lanes.
  std::vector<test::SlotSpec> slots;
  for (Bytes i = 0; i < 8; ++i) slots.push_back({64 * i, 64, 1});
  Serving serving(plan_of({sequence_of(slots)}));
  for (LaneKey lane = 1; lane <= 8; ++lane) {
    void* const block = serving.hit(64);
    serving.arena.record_use(block, lane);
    serving.device.touch(lane, block, 64);
    REQUIRE(serving.arena.free(block).found);
  }
  const std::uint64_t asked = serving.device.calls(CallKind::kQuery);
  for (int i = 0; i < 8; ++i) serving.hit(64);
  CHECK(serving.device.calls(CallKind::kQuery) <= asked + LaneEvents::kAskedARequest);
}

TEST_CASE("A lane that is captured misses where it would have to wait", "[arena][streams]") {
  Serving serving;
  serving.use_elsewhere(64);
  serving.device.set_capturing(0, true);
  CHECK(serving.served(60) == Served::kMissBusy);
  CHECK(serving.device.calls(CallKind::kWait) == 0);
  serving.device.set_capturing(0, false);
  serving.hit(50);
}

TEST_CASE("Bytes that a captured graph pins are not lent", "[arena][streams]") {
  // 64 to 192 belong to nobody.
  Serving serving(plan_of({sequence_of({{0, 64, 1}, {0, 60, 1}, {192, 64, 1}})}));
  auto* const kept = static_cast<std::byte*>(serving.hit(64));
  const Arena::Outcome pinned = serving.arena.allocate(60, 0, 0);
  REQUIRE(pinned.served == Served::kLent);
  REQUIRE(pinned.pointer == kept + 64);
  REQUIRE(serving.arena.pin(pinned.pointer));
  REQUIRE(serving.arena.free(pinned.pointer).found);
  serving.hit(64);
  const Arena::Outcome lent = serving.arena.allocate(64, 0, 0);
  REQUIRE(lent.served == Served::kLent);
  CHECK(lent.pointer == kept + 128);
}

TEST_CASE("Pinned bytes are handed out again once their graph has gone", "[arena][streams]") {
  Serving serving;
  void* const used = serving.hit(64);
  REQUIRE(serving.arena.pin(used));
  REQUIRE(serving.arena.free(used).found);
  CHECK(serving.served(60) == Served::kMissBusy);
  REQUIRE(serving.arena.unpin(used));
  serving.hit(50);
}

TEST_CASE("A larger range takes no bytes from under a captured graph", "[arena][streams]") {
  test::SimulatedDevice device({.maps_pages = false});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(test::look(kInTurn), Arena::Pages::kNow).ok());
  (void)arena.mark(0);
  void* const used = arena.allocate(64, 0, 0).pointer;
  REQUIRE(arena.pin(used));
  REQUIRE(arena.free(used).found);
  const Plan larger = plan_of({sequence_of({{kMiB, 64, 1}})});
  CHECK_FALSE(arena.activate(test::look(larger), Arena::Pages::kNow).ok());
  REQUIRE(arena.unpin(used));
  CHECK(arena.activate(test::look(larger), Arena::Pages::kNow).ok());
}

TEST_CASE("A block that a captured graph uses comes back when the graph has gone",
          "[runtime][streams][capture]") {
  test::SimulatedDevice device;
  test::CheckedAllocator allocator(device, options());
  void* const block = allocator.allocate(kMiB, 0);
  REQUIRE(allocator.pin(block));
  REQUIRE(allocator.free(block) == Allocator::FreeOutcome::kDone);
  REQUIRE_FALSE(allocator.pin(block));
  void* const other = allocator.allocate(kMiB, 0);
  CHECK(other != block);
  REQUIRE(allocator.free(other) == Allocator::FreeOutcome::kDone);
  allocator.process_events();
  (void)allocator.trim();
  CHECK(allocator.is_valid() == "");
  REQUIRE(allocator.unpin(block));
  REQUIRE_FALSE(allocator.unpin(block));
  CHECK(allocator.allocate(2 * kMiB, 0) != nullptr);
  CHECK(allocator.is_valid() == "");
}

TEST_CASE("A pinned block that was used on another lane waits for it after its graph",
          "[runtime][streams][capture]") {
  test::SimulatedDevice device;
  test::CheckedAllocator allocator(device, options());
  void* const block = allocator.allocate(kMiB, 0);
  device.hand_out(0, block, kMiB);
  allocator.record_use(block, 1);
  device.touch(1, block, kMiB);
  REQUIRE(allocator.pin(block));
  REQUIRE(allocator.free(block) == Allocator::FreeOutcome::kDone);
  REQUIRE(allocator.unpin(block));
  CHECK(device.hand_out(0, allocator.allocate(kMiB, 0), kMiB));
}

TEST_CASE("A step stays where it was while nobody can wait for what it has queued",
          "[arena][streams]") {
  Serving serving;
  REQUIRE(serving.arena.free(serving.hit(64)).found);
  serving.device.fail_call(1, kFailure, {}, true);
  (void)serving.arena.mark(1);
  serving.device.fail_none();
  CHECK(serving.arena.allocate(64, 1, 0).served == Served::kMissLane);
  (void)serving.arena.mark(1);
  const Arena::Outcome moved = serving.arena.allocate(64, 1, 0);
  REQUIRE(moved.served == Served::kHit);
  CHECK(serving.device.hand_out(1, moved.pointer, 64));
}

TEST_CASE("A plan stays while nobody can wait for what its lanes have queued", "[arena][streams]") {
  Serving serving;
  REQUIRE(serving.arena.free(serving.hit(64)).found);
  const auto before = serving.arena.plan();
  serving.device.fail_call(1, kFailure, {}, true);
  const Plan other = plan_of({sequence_of({{0, 64, 1}}, 0), sequence_of({{64, 64, 1}}, 1)});
  CHECK_FALSE(serving.arena.activate(test::look(other), Arena::Pages::kAsUsed).ok());
  serving.device.fail_none();
  CHECK(serving.arena.plan() == before);
  serving.hit(60);
}

TEST_CASE("A slot that shares a part of another lane's bytes is not handed out while they are live",
          "[arena][streams]") {
  // Lane 0 has [0, 128) at its tick 0, lane 1 [64, 128) at its tick 1, with edges both ways.
  Serving serving(plan_of(
      {sequence_of({{0, 128, 1}, {128, 64, 1}}, 0), sequence_of({{192, 64, 1}, {64, 64, 1}}, 1)},
      {{.from_lane = 0, .from_tick = 1, .to_lane = 1, .to_tick = 1, .delta = 0},
       {.from_lane = 1, .from_tick = 2, .to_lane = 0, .to_tick = 0, .delta = 1}}));
  (void)serving.arena.mark(1);
  auto* const block = static_cast<std::byte*>(serving.hit(128));
  const Arena::Outcome first = serving.arena.allocate(64, 1, 0);
  REQUIRE(first.served == Served::kHit);
  REQUIRE(serving.arena.free(first.pointer).found);
  SECTION("freed in time: handed out after its event") {
    REQUIRE(serving.arena.free(block).found);
    const Arena::Outcome next = serving.arena.allocate(64, 1, 0);
    REQUIRE(next.pointer == block + 64);
    CHECK(serving.device.hand_out(1, next.pointer, 64));
  }
  SECTION("still live") {
    CHECK(serving.arena.allocate(64, 1, 0).pointer != block + 64);
    CHECK(serving.arena.is_valid() == "");
  }
}

TEST_CASE("A pool block that was freed on another lane waits for what is queued there",
          "[runtime][streams]") {
  test::SimulatedDevice device;
  test::CheckedAllocator allocator(device, options());
  void* const block = allocator.allocate(kMiB, 0);
  device.hand_out(0, block, kMiB);
  device.touch(1, block, kMiB);
  REQUIRE(allocator.free(block, 1) == Allocator::FreeOutcome::kDone);
  CHECK(device.hand_out(0, allocator.allocate(kMiB, 0), kMiB));
}

TEST_CASE("A pool block whose event cannot be had now is nobody's until it can",
          "[runtime][streams]") {
  test::SimulatedDevice device;
  test::CheckedAllocator allocator(device, options());
  void* const block = allocator.allocate(kMiB, 0);
  device.hand_out(0, block, kMiB);
  allocator.record_use(block, 1);
  device.touch(1, block, kMiB);
  device.fail_call(1, {Status::Code::kUnsupported, "record"}, CallKind::kRecord);
  REQUIRE(allocator.free(block) == Allocator::FreeOutcome::kDone);
  CHECK(device.hand_out(0, allocator.allocate(kMiB, 0), kMiB));
}

TEST_CASE("No plan is loaded while a graph is captured", "[runtime][streams][capture]") {
  test::SimulatedDevice device;
  std::atomic<int> captures{0};
  test::CheckedAllocator allocator(device, options(&captures));
  allocator.load_plan(plan_of({sequence_of({{kMiB, kMiB, 1}})}));
  const auto calls = [&] {
    return device.calls(CallKind::kSynchronizeAll) + device.calls(CallKind::kDecommit) +
           device.calls(CallKind::kCommit);
  };
  const std::uint64_t before = calls();
  captures = 1;
  CHECK_THROWS_AS(allocator.load_plan(kInTurn), Error);
  CHECK(calls() == before);
  captures = 0;
  allocator.load_plan(kInTurn);
  CHECK(allocator.plan() == kInTurn);
}

TEST_CASE("An exhausted allocator waits for nothing while a graph is captured",
          "[runtime][streams][capture]") {
  test::SimulatedDevice device({.total_bytes = 4 * kMiB});
  std::atomic<int> captures{0};
  test::CheckedAllocator allocator(device, options(&captures));
  void* const all = allocator.allocate(4 * kMiB, 0);
  captures = 1;
  CHECK_THROWS_AS(allocator.allocate(kMiB, 0), OutOfMemory);
  CHECK(device.calls(CallKind::kSynchronizeAll) == 0);
  captures = 0;
  CHECK_THROWS_AS(allocator.allocate(kMiB, 0), OutOfMemory);
  CHECK(device.calls(CallKind::kSynchronizeAll) > 0);
  (void)allocator.free(all);
}

TEST_CASE("While a graph is captured no event is asked and an idle arena stays",
          "[runtime][streams][capture]") {
  test::SimulatedDevice device;
  std::atomic<int> captures{0};
  test::CheckedAllocator allocator(device, options(&captures));
  allocator.load_plan(kInTurn);
  void* const block = allocator.allocate(kMiB, 0);
  allocator.record_use(block, 1);
  device.touch(1, block, kMiB);
  REQUIRE(allocator.free(block) == Allocator::FreeOutcome::kDone);  // waits for its event
  captures = 1;
  const std::uint64_t asked = device.calls(CallKind::kQuery);
  allocator.mark_step(0);
  CHECK(device.calls(CallKind::kQuery) == asked);
  allocator.process_events();
  CHECK(device.calls(CallKind::kQuery) == asked);
  CHECK(allocator.trim() == 0);
  CHECK(allocator.trim() == 0);
  captures = 0;
  allocator.process_events();
  CHECK(device.calls(CallKind::kQuery) > asked);
  CHECK(allocator.trim() > 0);
}

TEST_CASE("A mark takes up no plan while a graph is captured", "[runtime][streams][capture]") {
  test::SimulatedDevice device;
  std::atomic<int> captures{1};
  Allocator::Options learning = options(&captures);
  learning.config.mode = Mode::kLearn;
  test::CheckedAllocator allocator(device, learning);
  const auto make_steps = [&] {
    for (int i = 0; i < 20; ++i) {
      for (const Bytes size : {Bytes{64}, kMiB}) (void)allocator.free(allocator.allocate(size, 0));
      allocator.mark_step(0);
    }
  };
  make_steps();
  CHECK_FALSE(allocator.plan());
  captures = 0;
  make_steps();
  CHECK(allocator.plan());
}

TEST_CASE("Without marks a plan is taken up and gets its memory while no graph is captured",
          "[runtime][streams][capture]") {
  constexpr int kMany = 100000;
  test::SimulatedDevice device;
  std::atomic<int> captures{0};
  Allocator::Options learning = options(&captures);
  learning.config.mode = Mode::kLearn;
  int requests = 0;
  const auto request = [&](Allocator& allocator) {
    const Bytes size = 64 * (1 + Bytes(requests++ % 8));
    REQUIRE(allocator.free(allocator.allocate(size, 0)) == Allocator::FreeOutcome::kDone);
  };
  {
    test::CheckedAllocator allocator(device, learning);
    while (!allocator.plan() && requests < kMany) request(allocator);
    REQUIRE(allocator.plan());
  }
  test::CheckedAllocator allocator(device, learning);
  const int enough = requests + 100;
  requests = 0;
  captures = 1;
  while (requests < enough) request(allocator);
  CHECK_FALSE(allocator.plan());
  captures = 0;
  while (!allocator.plan() && requests < kMany) request(allocator);
  REQUIRE(allocator.plan());

  captures = 1;
  const std::uint64_t waits = device.calls(CallKind::kSynchronizeAll);
  const std::uint64_t commits = device.calls(CallKind::kCommit);
  for (int i = 0; i < 100; ++i) request(allocator);
  CHECK(device.calls(CallKind::kSynchronizeAll) == waits);
  CHECK(device.calls(CallKind::kCommit) == commits);
  CHECK(allocator.stats().hits == 0);
  captures = 0;
  while (allocator.stats().hits == 0 && requests < kMany) request(allocator);
  REQUIRE(allocator.stats().hits == 1);

  CHECK(device.calls(CallKind::kSynchronizeAll) == waits);
  CHECK(allocator.is_valid() == "");
}

TEST_CASE("A range that goes for a larger one goes when work on it is done", "[arena][streams]") {
  test::SimulatedDevice device({.maps_pages = false});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(test::look(kInTurn), Arena::Pages::kNow).ok());
  (void)arena.mark(0);
  void* const block = arena.allocate(64, 0, 0).pointer;
  REQUIRE(block != nullptr);
  device.hand_out(0, block, 64);
  REQUIRE(arena.free(block).found);
  REQUIRE(
      arena.activate(test::look(plan_of({sequence_of({{kMiB, 64, 1}})})), Arena::Pages::kNow).ok());
  CHECK(device.violations().empty());
}
