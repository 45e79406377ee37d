#include "csrc/runtime/arena.h"

#include "csrc/device/host_device.h"
#include "csrc/plan/verify.h"
#include "tests/catch.h"
#include "tests/support/lone_arena.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_plan.h"

#include <memory>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace berth;
using berth::test::plan_of;
using berth::test::sequence_of;

namespace {

// An arena that serves a plan from its first slot on.
struct Serving {
  explicit Serving(const Plan& plan, Device& the_device) : device(the_device), arena(device, 64) {
    load(plan);
  }
  void load(const Plan& plan) {
    REQUIRE(arena.activate(std::make_shared<const PlanLookup>(plan), Arena::Pages::kNow).ok());
    for (const LaneKey key : plan.lane_keys) (void)arena.mark(key);
  }
  void* hit(Bytes size, LaneKey lane = 0) {
    const Arena::Outcome outcome = arena.allocate(size, lane, 0);
    REQUIRE(arena.is_valid() == "");
    REQUIRE(outcome.served == Served::kHit);
    return outcome.pointer;
  }
  Served miss(Bytes size, LaneKey lane = 0) {
    const Arena::Outcome outcome = arena.allocate(size, lane, 0);
    REQUIRE(arena.is_valid() == "");
    REQUIRE(outcome.pointer == nullptr);
    return outcome.served;
  }
  bool free(void* pointer) {
    const bool found = arena.free(pointer).found;
    REQUIRE(arena.is_valid() == "");
    return found;
  }
  Device& device;
  test::LoneArena arena;
};

struct HostServing : private std::unique_ptr<Device>, Serving {
  explicit HostServing(const Plan& plan)
      : std::unique_ptr<Device>(make_host_device(Bytes{1} << 30)), Serving(plan, *get()) {}
};

// A: [0, 64) for ticks 0 and 1; B on the same bytes at tick 2; C again at tick 3; D beside them
// all.
const Plan kThreeOnOne = plan_of({sequence_of({{0, 64, 2}, {64, 128, 3}, {0, 60, 1}, {0, 50, 1}})});

std::ptrdiff_t apart(void* a, void* b) {
  return static_cast<std::byte*>(b) - static_cast<std::byte*>(a);
}

}  // namespace

TEST_CASE("The k-th request is served at its planned offset in every step", "[arena]") {
  HostServing serving(kThreeOnOne);
  void* first = nullptr;
  for (int step = 0; step < 3; ++step) {
    void* a = serving.hit(64);
    if (first == nullptr) first = a;
    REQUIRE(a == first);
    void* d = serving.hit(128);
    REQUIRE(apart(a, d) == 64);
    REQUIRE(serving.free(a));
    void* b = serving.hit(60);
    REQUIRE(b == a);
    REQUIRE(serving.free(b));
    void* c = serving.hit(50);
    REQUIRE(c == a);
    REQUIRE(serving.free(c));
    REQUIRE(serving.free(d));
    REQUIRE_FALSE(serving.arena.mark(0));
    REQUIRE(serving.arena.off_schedule() == 0);
  }
}

TEST_CASE("A block that overstays keeps its bytes although the tenant after it never came",
          "[arena]") {
  HostServing serving(kThreeOnOne);
  void* a = serving.hit(64);
  void* d = serving.hit(128);
  REQUIRE(serving.miss(60) == Served::kMissBusy);  // B: A is still there
  REQUIRE(serving.miss(50) == Served::kMissBusy);  // C: B is not in the arena, A is
  REQUIRE(serving.arena.free(a).late);
  serving.free(d);
  serving.arena.mark(0);
  REQUIRE(serving.hit(64) == a);
}

TEST_CASE("A slot that is still live when its step comes again is not handed out twice",
          "[arena]") {
  HostServing serving(plan_of({sequence_of({{0, 64, 2}, {64, 64, 2}})}));
  void* a = serving.hit(64);
  void* b = serving.hit(64);
  REQUIRE(serving.miss(64) == Served::kMissBusy);
  REQUIRE(serving.free(b));
  REQUIRE(serving.hit(64) == b);
  REQUIRE(serving.free(a));
  REQUIRE(serving.hit(64) == a);
}

TEST_CASE("A lifetime may wrap around into the next step", "[arena]") {
  // The second slot lives until after the first request of the next step.
  HostServing serving(plan_of({sequence_of({{0, 64, 1}, {64, 64, 3}, {0, 64, 1}})}));
  void* wrapped = nullptr;
  for (int step = 0; step < 3; ++step) {
    void* first = serving.hit(64);
    if (wrapped != nullptr) REQUIRE_FALSE(serving.arena.free(wrapped).late);
    serving.free(first);
    wrapped = serving.hit(64);
    serving.free(serving.hit(64));
    serving.arena.mark(0);
    REQUIRE(serving.arena.off_schedule() == 0);
  }
}

// A on [128, 192) at tick 0, B and C on [0, 64) at ticks 1 and 2, D on [64, 128) at tick 3.
const Plan kTwoOnOne = plan_of({sequence_of({{128, 64, 1}, {0, 64, 1}, {0, 60, 1}, {64, 64, 1}})});

TEST_CASE("A request whose bytes are in use is lent bytes that nobody needs until it ends",
          "[arena]") {
  HostServing serving(kTwoOnOne);
  void* a = serving.hit(64);
  REQUIRE(serving.free(a));
  void* b = serving.hit(64);
  const Arena::Outcome c = serving.arena.allocate(60, 0, 0);
  REQUIRE(c.served == Served::kLent);
  REQUIRE(c.pointer == a);  // D is to come
  REQUIRE(serving.arena.is_valid() == "");
  REQUIRE(serving.arena.off_schedule() == 2);
  REQUIRE(serving.hit(64) != nullptr);
  REQUIRE(serving.free(c.pointer));
  REQUIRE_FALSE(serving.free(c.pointer));
  REQUIRE(serving.free(b));
  REQUIRE(serving.arena.off_schedule() == 0);
}

TEST_CASE("Bytes that were lent are not handed out while they are kept", "[arena]") {
  HostServing serving(kTwoOnOne);
  REQUIRE(serving.free(serving.hit(64)));
  void* b = serving.hit(64);
  void* lent = serving.arena.allocate(60, 0, 0).pointer;
  REQUIRE(lent != nullptr);
  void* d = serving.hit(64);
  serving.arena.mark(0);
  REQUIRE(serving.miss(64) == Served::kMissBusy);  // A: nothing else is left to lend either
  for (void* pointer : {b, lent, d}) REQUIRE(serving.free(pointer));
}

// Large enough to be lent where the plan rests.
constexpr Bytes kLarge = Bytes{1} << 20;

TEST_CASE("A step of another kind has the idle arena for its large requests", "[arena]") {
  // Kept from the step before; then slots that the other step never asks for.
  HostServing serving(plan_of({sequence_of(
      {{0, kLarge, 3}, {kLarge, 2 * kLarge, 1}, {3 * kLarge, 64, 1}, {kLarge, 2 * kLarge, 1}})}));
  void* const kept = serving.hit(kLarge);
  std::vector<void*> lent;
  Bytes odd = 3 * kLarge / 2;
  for (int i = 0; i < 200 && lent.size() < 1; ++i) {  // until the lane is lost
    const Arena::Outcome outcome = serving.arena.allocate(odd, 0, 0);
    REQUIRE(serving.arena.is_valid() == "");
    if (outcome.served == Served::kLent) lent.push_back(outcome.pointer);
  }
  REQUIRE(lent.size() == 1);
  REQUIRE(apart(kept, lent[0]) >= static_cast<std::ptrdiff_t>(kLarge));
  REQUIRE(serving.miss(2 * kLarge) == Served::kMissSize);  // no room beside the two
  REQUIRE(serving.miss(100) == Served::kMissSize);         // small ones go to the pool
  // The plan's own step again: slots on lent bytes miss until they are free.
  REQUIRE(serving.free(kept));
  serving.arena.mark(0);
  REQUIRE(serving.hit(kLarge) == kept);
  REQUIRE(serving.miss(2 * kLarge) == Served::kMissBusy);
  REQUIRE(serving.free(lent[0]));
  REQUIRE(serving.hit(64) != nullptr);
  REQUIRE(serving.hit(2 * kLarge) == lent[0]);
}

TEST_CASE("An idle arena's bytes are lent after the other streams that used them", "[arena]") {
  test::SimulatedDevice device;
  Serving serving(
      plan_of({sequence_of({{0, kLarge, 1}, {kLarge, kLarge, 1}, {2 * kLarge, 64, 1}})}), device);
  void* const used = serving.hit(kLarge);
  serving.arena.record_use(used, 7);
  device.touch(7, used, kLarge);
  REQUIRE(serving.free(used));
  for (int i = 0; i < 200; ++i) {  // until the lane is lost
    const Arena::Outcome outcome = serving.arena.allocate(kLarge + 64, 0, 0);
    if (outcome.served != Served::kLent) continue;
    REQUIRE(outcome.pointer == used);
    device.hand_out(0, outcome.pointer, outcome.size);
    REQUIRE(device.calls(test::CallKind::kWait) == 1);
    REQUIRE(device.violations().empty());
    REQUIRE(serving.free(outcome.pointer));
    return;
  }
  FAIL("nothing was lent");
}

TEST_CASE("Frees of what is not live are found", "[arena]") {
  HostServing serving(kThreeOnOne);
  auto* a = static_cast<std::byte*>(serving.hit(64));
  REQUIRE_FALSE(serving.free(a + 64));
  REQUIRE_FALSE(serving.free(a + 1));
  REQUIRE_FALSE(serving.free(a + 4096));
  REQUIRE(serving.free(a));
  REQUIRE_FALSE(serving.free(a));
}

TEST_CASE("An early mark starts the step again and what is alive stays apart", "[arena]") {
  HostServing serving(plan_of({sequence_of({{0, 64, 2}, {64, 64, 2}, {128, 128, 1}, {0, 64, 1}})}));
  void* a = serving.hit(64);
  void* b = serving.hit(64);
  REQUIRE(serving.arena.mark(0));
  REQUIRE(serving.miss(64) == Served::kMissBusy);
  REQUIRE(serving.free(a));
  REQUIRE(serving.miss(64) == Served::kMissBusy);
  REQUIRE(serving.free(b));
  REQUIRE(serving.arena.mark(0));
  REQUIRE(serving.hit(64) == a);
  REQUIRE(serving.hit(64) == b);
}

TEST_CASE("Without a mark the step starts again by itself", "[arena]") {
  HostServing serving(kThreeOnOne);
  for (int step = 0; step < 5; ++step) {
    void* a = serving.hit(64);
    void* d = serving.hit(128);
    serving.free(a);
    serving.free(serving.hit(60));
    serving.free(serving.hit(50));
    serving.free(d);
  }
}

TEST_CASE("A slot that the plan leaves to the pool keeps its place in the sequence", "[arena]") {
  Sequence sequence = sequence_of({{0, 64, 1}, {0, 64, 1}, {0, 128, 1}});
  sequence.slots[1].offset = Slot::kUnplanned;
  HostServing serving(plan_of({sequence}));
  for (int step = 0; step < 2; ++step) {
    serving.free(serving.hit(64));
    REQUIRE(serving.miss(64) == Served::kUnplanned);
    serving.free(serving.hit(128));
  }
}

TEST_CASE(
    "A lane that the plan does not know misses and binds at its mark when the plan has one lane",
    "[arena]") {
  HostServing serving(kThreeOnOne);
  REQUIRE(serving.miss(64, 7) == Served::kMissLane);
  serving.arena.mark(7);
  serving.hit(64, 7);
  REQUIRE(serving.miss(128, 0) == Served::kMissLane);
}

TEST_CASE("Blocks of one plan outlive it and keep their bytes under the next", "[arena]") {
  HostServing serving(kThreeOnOne);
  void* a = serving.hit(64);
  const Plan next = plan_of({sequence_of({{0, 128, 2}, {128, 64, 2}})});
  serving.load(next);
  REQUIRE(serving.miss(128) == Served::kMissBusy);
  void* other = serving.hit(64);
  REQUIRE(apart(a, other) == 128);
  REQUIRE(serving.free(a));
  REQUIRE_FALSE(serving.free(a));
  serving.free(other);
  serving.arena.mark(0);
  REQUIRE(serving.hit(128) == a);
}

TEST_CASE("A plan without a home serves nothing and leaves the one before it", "[arena]") {
  const auto device = make_host_device(Bytes{1} << 20);
  test::LoneArena arena(*device, 64);
  REQUIRE(arena.activate(std::make_shared<const PlanLookup>(kThreeOnOne), Arena::Pages::kNow).ok());
  arena.mark(0);
  const Plan large = plan_of({sequence_of({{0, Bytes{1} << 30, 1}})});
  REQUIRE_FALSE(arena.activate(std::make_shared<const PlanLookup>(large), Arena::Pages::kNow).ok());
  REQUIRE(arena.plan()->plan() == kThreeOnOne);
  arena.mark(0);
  REQUIRE(arena.allocate(64, 0, 0).served == Served::kHit);
}

TEST_CASE("A branch of the step is followed where its first request tells it from the others",
          "[arena]") {
  // Common: two requests. Then the root goes on with 256 bytes, the branch with 512.
  Sequence root = sequence_of({{0, 64, 2}, {64, 64, 1}, {64, 256, 1}});
  Sequence branch;
  branch.parent = 0;
  branch.fork = 2;
  branch.period = 4;
  branch.marks = {0};
  branch.slots = {{.offset = 64, .requested = 512, .size = 512, .birth = 2, .length = 1},
                  {.offset = 64, .requested = 100, .size = 128, .birth = 3, .length = 1}};
  HostServing serving(plan_of({root, branch}));
  for (int step = 0; step < 4; ++step) {
    void* common = serving.hit(64);
    serving.free(serving.hit(64));
    serving.free(common);
    if (step % 2 == 0) {
      serving.free(serving.hit(256));
    } else {
      void* taken = serving.hit(512);
      REQUIRE(apart(common, taken) == 64);
      serving.free(taken);
      serving.free(serving.hit(100));
    }
    serving.arena.mark(0);
  }
}

TEST_CASE("Kinds of steps in random turns are each served on their own path", "[arena]") {
  // Three kinds that begin alike: two share the slots of what they have in common, the third has
  // others, as blocks that the first leaves alive do not let it have those.
  Sequence root = sequence_of({{0, 64, 2}, {64, 64, 1}, {64, 256, 1}});
  Sequence shares{.lane = 0, .parent = 0, .fork = 2, .period = 4, .marks = {0}, .slots = {}};
  shares.slots = {{.offset = 64, .requested = 512, .size = 512, .birth = 2, .length = 1},
                  {.offset = 64, .requested = 100, .size = 128, .birth = 3, .length = 1}};
  Sequence apart{.lane = 0, .parent = 0, .fork = 0, .period = 3, .marks = {0}, .slots = {}};
  apart.slots = {{.offset = 576, .requested = 64, .size = 64, .birth = 0, .length = 1},
                 {.offset = 640, .requested = 64, .size = 64, .birth = 1, .length = 1},
                 {.offset = 704, .requested = 70, .size = 128, .birth = 2, .length = 1}};
  HostServing serving(plan_of({root, shares, apart}));
  std::mt19937 random(3);
  void* kept = nullptr;  // by the first kind, until it comes again
  for (int step = 0; step < 200; ++step) {
    const auto kind = random() % 3;
    if (kind != 2 && kept != nullptr) serving.free(std::exchange(kept, nullptr));
    const Bytes sizes[3][4] = {{64, 64, 256, 0}, {64, 64, 512, 100}, {64, 64, 70, 0}};
    for (const Bytes size : sizes[kind]) {
      if (size == 0) break;
      void* const block = serving.hit(size);
      if (size == 256) {
        kept = block;
      } else {
        serving.free(block);
      }
    }
    serving.arena.mark(0);
  }
}

TEST_CASE("Bytes used on another lane are handed out after that lane's event", "[arena][lanes]") {
  test::SimulatedDevice device;
  Serving serving(kThreeOnOne, device);
  void* a = serving.hit(64);
  device.touch(0, a, 64);
  serving.arena.record_use(a, 5);
  device.touch(5, a, 64);
  void* d = serving.hit(128);
  serving.free(a);
  void* b = serving.hit(60);
  REQUIRE(b == a);
  device.hand_out(0, b, 60);
  REQUIRE(device.violations().empty());
  serving.free(b);
  serving.free(d);
}

TEST_CASE("A free on another lane than the owner's guards the bytes", "[arena][lanes]") {
  test::SimulatedDevice device;
  Serving serving(kThreeOnOne, device);
  void* a = serving.hit(64);
  serving.hit(128);
  device.touch(9, a, 64);
  REQUIRE(serving.arena.free(a, 9).found);
  void* b = serving.hit(60);
  device.hand_out(0, b, 60);
  REQUIRE(device.violations().empty());
}

TEST_CASE("A free whose event cannot be recorded keeps the bytes until a synchronisation",
          "[arena][lanes]") {
  test::SimulatedDevice device;
  Serving serving(kThreeOnOne, device);
  void* a = serving.hit(64);
  serving.arena.record_use(a, 5);
  serving.hit(128);
  device.fail_call(1, {Status::Code::kFailed, "record"}, test::CallKind::kRecord);
  const Arena::Freed freed = serving.arena.free(a);
  REQUIRE(freed.found);
  REQUIRE(freed.device_error);
  REQUIRE_FALSE(serving.free(a));
  REQUIRE(serving.miss(60) == Served::kMissBusy);
  REQUIRE(device.synchronize_all().ok());
  serving.arena.synchronized();
  REQUIRE(serving.hit(50) == a);
}

TEST_CASE("A lane that cannot be made to wait misses", "[arena][lanes]") {
  test::SimulatedDevice device;
  Serving serving(kThreeOnOne, device);
  void* a = serving.hit(64);
  serving.arena.record_use(a, 5);
  serving.hit(128);
  serving.free(a);
  device.fail_call(1, {Status::Code::kFailed, "wait"}, test::CallKind::kWait);
  REQUIRE(serving.miss(60) == Served::kMissBusy);
  REQUIRE(serving.hit(50) == a);
}

TEST_CASE("Lanes that share bytes by an edge wait for each other's events in every run",
          "[arena][lanes]") {
  // Lane 0 uses the bytes at its tick 0, lane 1 at its tick 1, with edges both ways.
  const Plan plan = plan_of(
      {sequence_of({{0, 64, 1}, {64, 64, 1}}, 0), sequence_of({{128, 64, 1}, {0, 64, 1}}, 1)},
      {{.from_lane = 0, .from_tick = 1, .to_lane = 1, .to_tick = 1, .delta = 0},
       {.from_lane = 1, .from_tick = 2, .to_lane = 0, .to_tick = 0, .delta = 1}});
  test::SimulatedDevice device;
  Serving serving(plan, device);
  void* a = serving.hit(64, 0);
  device.touch(0, a, 64);
  serving.hit(64, 1);
  SECTION("freed in time") {
    serving.free(a);
    void* b = serving.hit(64, 1);
    REQUIRE(b == a);
    device.hand_out(1, b, 64);
    REQUIRE(device.violations().empty());
  }
  SECTION("still live: lanes drift, and the other lane's position proves nothing") {
    REQUIRE(serving.miss(64, 1) == Served::kMissBusy);
  }
}

TEST_CASE("Pinned bytes are nobody's", "[arena]") {
  HostServing serving(kThreeOnOne);
  void* const used = serving.hit(64);
  REQUIRE(serving.arena.pin(used));
  REQUIRE(serving.arena.pin(used));  // by two graphs
  serving.hit(128);
  REQUIRE(serving.free(used));
  REQUIRE_FALSE(serving.arena.pin(used));  // no block any more
  REQUIRE(serving.miss(60) == Served::kMissBusy);
  REQUIRE(serving.arena.unpin(used));
  REQUIRE(serving.miss(50) == Served::kMissBusy);
  REQUIRE(serving.arena.unpin(used));
  REQUIRE_FALSE(serving.arena.unpin(used));
  REQUIRE(serving.hit(64) == used);
}

TEST_CASE("An idle arena gives its memory back and serves on when it comes again", "[arena]") {
  HostServing serving(kThreeOnOne);
  void* a = serving.hit(64);
  REQUIRE(serving.arena.give_back() == 0);
  serving.free(a);
  REQUIRE(serving.arena.give_back() >= 192);
  REQUIRE(serving.arena.committed() == 0);
  REQUIRE(serving.hit(128) != nullptr);
  REQUIRE(serving.arena.committed() >= 192);
}

TEST_CASE("Of requests that a bucket is too small for a bounded number is remembered", "[arena]") {
  HostServing serving(plan_of({sequence_of({{0, 64, 1, 32}})}));
  for (std::size_t i = 0; i < Arena::kMostGrowth + 10; ++i) {
    (void)serving.arena.mark(0);
    REQUIRE(serving.arena.allocate(100, 0, 0).served == Served::kMissSize);
    serving.arena.grow_bucket();
  }
  CHECK(serving.arena.take_growth().size() == Arena::kMostGrowth);
  CHECK_FALSE(serving.arena.wants_growth());
}

// Slots of two pages. A block of a page and a quarter leaves three quarters of its second page.
TEST_CASE("Blocks in buckets leave of their pages what they may all together", "[arena]") {
  constexpr Bytes kPage = Bytes{64} << 10;
  test::SimulatedDevice device({.total_bytes = 64 * kPage, .page_bytes = kPage});
  const Bytes slot = 2 * kPage, less = kPage + kPage / 4;
  Serving serving(plan_of({sequence_of({{0, slot, 4, kPage},
                                        {slot, slot, 4, kPage},
                                        {2 * slot, slot, 4, kPage},
                                        {3 * slot, slot, 4, kPage}})}),
                  device);
  serving.arena.set_most_left(kPage);
  const auto served = [&](Bytes size) { return serving.arena.allocate(size, 0, 0); };
  const Arena::Outcome first = served(less);
  REQUIRE(first.served == Served::kBucket);
  CHECK(served(less).served == Served::kMissBusy);
  // Nearly all of its page.
  CHECK(served(2 * kPage - kPage / 64).served == Served::kBucket);
  REQUIRE(serving.free(first.pointer));
  CHECK(served(less).served == Served::kBucket);
  CHECK(device.violations().empty());
}

// What it lends may leave most of a page to nobody: lend_spare() looks for what leaves least.
TEST_CASE("An arena where parts of pages are many lends no bytes by itself", "[arena]") {
  for (const bool crowded : {false, true}) {
    CAPTURE(crowded);
    // For a slot whose bytes are in use.
    HostServing serving(kTwoOnOne);
    serving.arena.set_crowded(crowded);
    void* const a = serving.hit(64);
    REQUIRE(serving.free(a));
    (void)serving.hit(64);
    CHECK(serving.arena.allocate(60, 0, 0).served == (crowded ? Served::kMissBusy : Served::kLent));
    // To a lane that rests.
    HostServing resting(
        plan_of({sequence_of({{0, kLarge, 1}, {kLarge, 2 * kLarge, 1}, {3 * kLarge, 64, 1}})}));
    resting.arena.set_crowded(crowded);
    REQUIRE(resting.free(resting.hit(kLarge)));
    int lent = 0;
    for (int i = 0; i < 200; ++i)
      lent += resting.arena.allocate(3 * kLarge / 2, 0, 0).served == Served::kLent;
    CHECK((lent == 0) == crowded);
  }
}

TEST_CASE("What an arena can spare is looked up anew once a slot was handed out", "[arena]") {
  constexpr Bytes kPage = Bytes{64} << 10;
  test::SimulatedDevice device({.total_bytes = 64 * kPage, .page_bytes = kPage});
  Serving serving(plan_of({sequence_of({{0, kPage, 2}, {kPage, kPage, 2}})}), device);
  const auto lend = [&](Bytes size) {
    return serving.arena.lend_spare({PageLender::Spare::kAny}, size, 0, 0, kPage).pointer;
  };
  CHECK(lend(3 * kPage) == nullptr);
  void* const first = serving.hit(kPage);
  CHECK(lend(2 * kPage) == nullptr);
  void* const lent = lend(kPage);
  CHECK(apart(first, lent) == kPage);
  CHECK(device.violations().empty());
}

TEST_CASE("What a lane needs next is looked up anew once it went on", "[arena]") {
  constexpr Bytes kPage = Bytes{64} << 10;
  test::SimulatedDevice device({.total_bytes = 64 * kPage, .page_bytes = kPage});
  std::vector<test::SlotSpec> slots;
  for (Bytes k = 0; k < 8; ++k) slots.push_back({k * kPage, kPage, 1});
  Serving serving(plan_of({sequence_of(slots)}), device);
  const auto lend = [&](Bytes size) {
    return serving.arena.lend_spare({PageLender::Spare::kLong}, size, 0, 0, kPage).pointer;
  };
  void* const first = serving.hit(kPage);
  REQUIRE(serving.free(first));
  CHECK(lend(8 * kPage) == nullptr);  // the second slot lies within
  REQUIRE(serving.free(serving.hit(kPage)));
  REQUIRE(serving.free(serving.hit(kPage)));
  std::vector<std::ptrdiff_t> lent;
  while (void* const page = lend(kPage))
    lent.push_back(apart(first, page) / static_cast<std::ptrdiff_t>(kPage));
  std::sort(lent.begin(), lent.end());
  CHECK(lent == std::vector<std::ptrdiff_t>{0, 1, 2, 4, 5, 6, 7});
  CHECK(serving.hit(kPage) != nullptr);
  CHECK(device.violations().empty());
}

TEST_CASE("What an arena lends leaves no more of the last page than it may", "[arena]") {
  constexpr Bytes kPage = Bytes{64} << 10;
  test::SimulatedDevice device({.total_bytes = 64 * kPage, .page_bytes = kPage});
  Serving serving(plan_of({sequence_of({{0, 3 * kPage, 1}})}), device);
  const auto lend = [&](Bytes size, Bytes most_left) {
    return serving.arena.lend_spare({PageLender::Spare::kAny}, size, 0, 0, most_left).pointer;
  };
  CHECK(lend(kPage + kPage / 4, kPage / 2) == nullptr);
  void* const whole = lend(kPage, 0);
  REQUIRE(whole != nullptr);
  void* const left = lend(kPage + kPage / 4, kPage);
  REQUIRE(left != nullptr);
  // It shares its page with what lives behind it.
  CHECK(apart(whole, left) == kPage);
  CHECK(lend(kPage - kPage / 4, 0) != nullptr);
  REQUIRE(serving.free(left));
  CHECK(device.violations().empty());
}

TEST_CASE("A bucket is to grow by a request only once that was served elsewhere", "[arena]") {
  HostServing serving(plan_of({sequence_of({{0, 64, 1, 32}, {64, 64, 1}})}));
  REQUIRE(serving.miss(100) == Served::kMissSize);  // and the pool refuses it
  CHECK_FALSE(serving.arena.wants_growth());
  REQUIRE(serving.miss(5000) == Served::kMissSize);
  serving.arena.grow_bucket();  // of the other request, which no bucket stands for
  CHECK_FALSE(serving.arena.wants_growth());
  (void)serving.arena.mark(0);
  REQUIRE(serving.miss(100) == Served::kMissSize);
  serving.arena.grow_bucket();
  const std::vector<Arena::Growth> growth = serving.arena.take_growth();
  REQUIRE(growth.size() == 1);
  CHECK(growth[0].bytes == 100);
  CHECK(growth[0].index == 0);
}

TEST_CASE("A step that begins again behind the end of the path it would begin on stays on its own",
          "[arena]") {
  // Steps begin on the branch, which makes the first two requests of the root's eight and whose
  // blocks live longer.
  std::vector<test::SlotSpec> root;
  for (Bytes k = 0; k < 8; ++k) root.push_back({1024 * k, 64 * (k + 1), 1});
  HostServing serving(
      plan_of({sequence_of(root), test::branch_of(0, 0, {{8192, 64, 2}, {9216, 128, 2}})}));
  void* fifth = nullptr;
  for (Bytes k = 0; k < 7; ++k) {
    void* const pointer = serving.hit(64 * (k + 1));
    if (k == 4) fifth = pointer;
    REQUIRE(serving.free(pointer));
  }
  // The last request does not come, nor do the first two of the next step.
  for (const Bytes size : {192, 256}) {
    const Arena::Outcome outcome = serving.arena.allocate(size, 0, 0);
    if (outcome.pointer != nullptr) REQUIRE(serving.free(outcome.pointer));
  }
  const Arena::Outcome again = serving.arena.allocate(320, 0, 0);
  CHECK(again.pointer == fifth);
  CHECK(again.size == 320);
}
