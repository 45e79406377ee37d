// What each rule of streams is there for, one case a rule. tests/mutants removes the rules one by
// one.

#include "csrc/runtime/allocator.h"
#include "csrc/runtime/arena.h"
#include "tests/catch.h"
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
    REQUIRE(arena.activate(test::look(plan), false).ok());
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
  Arena arena;
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
  serving.arena.poll_guards(true);
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

TEST_CASE("A request waits for guards and asks none whether it is over", "[arena][streams]") {
  Serving serving;
  serving.use_elsewhere(64);
  const std::uint64_t asked = serving.device.calls(CallKind::kQuery);
  serving.use_elsewhere(60);
  serving.hit(50);
  CHECK(serving.device.calls(CallKind::kQuery) == asked);
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
  serving.arena.pin({64, 128});
  const Arena::Outcome lent = serving.arena.allocate(60, 0, 0);
  REQUIRE(lent.served == Served::kLent);
  CHECK(lent.pointer == kept + 128);
}

TEST_CASE("Pinned bytes are handed out again once their graph has gone", "[arena][streams]") {
  Serving serving;
  serving.arena.pin({0, 64});
  CHECK(serving.served(64) == Served::kMissBusy);
  serving.arena.unpin({0, 64});
  serving.hit(60);
}

TEST_CASE("A pool block that was freed on another lane waits for what is queued there",
          "[runtime][streams]") {
  test::SimulatedDevice device;
  Allocator allocator(device, options());
  void* const block = allocator.allocate(kMiB, 0);
  device.hand_out(0, block, kMiB);
  device.touch(1, block, kMiB);
  REQUIRE(allocator.free(block, 1) == Allocator::FreeOutcome::kDone);
  CHECK(device.hand_out(0, allocator.allocate(kMiB, 0), kMiB));
}

TEST_CASE("An exhausted allocator waits for nothing while a graph is captured",
          "[runtime][streams][capture]") {
  test::SimulatedDevice device({.total_bytes = 4 * kMiB});
  std::atomic<int> captures{0};
  Allocator allocator(device, options(&captures));
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
  Allocator allocator(device, options(&captures));
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
  CHECK(allocator.retire_arena() == 0);
  CHECK(allocator.trim() == 0);
  captures = 0;
  allocator.process_events();
  CHECK(device.calls(CallKind::kQuery) > asked);
  CHECK(allocator.retire_arena() > 0);
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
    Allocator allocator(device, learning);
    while (!allocator.plan() && requests < kMany) request(allocator);
    REQUIRE(allocator.plan());
  }
  Allocator allocator(device, learning);
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
  for (int i = 0; i < 100; ++i) request(allocator);
  CHECK(allocator.stats().hits > 0);
  CHECK(allocator.is_valid() == "");
}
