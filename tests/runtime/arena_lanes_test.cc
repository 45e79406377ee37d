// Lanes that move, share, fork and outlive their plan; devices that fail or lag behind.

#include "csrc/device/host_device.h"
#include "csrc/plan/verify.h"
#include "csrc/runtime/allocator.h"
#include "csrc/runtime/arena.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/forked_child.h"
#include "tests/support/lone_arena.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_plan.h"

#include <memory>
#include <stdexcept>
#include <vector>

using namespace berth;
using namespace berth::test;

// lane 1 is none of the plan's.
TEST_CASE("A lane that the plan does not have is not served", "[arena][lanes]") {
  // slot 0 and slot 2 share bytes, at different offsets; disjoint in time.
  const Plan plan = plan_of({sequence_of({{0, 128, 1}, {128, 64, 1}, {64, 64, 1}, {128, 50, 1}})});
  const auto device = make_host_device(Bytes{1} << 30);
  test::LoneArena arena(*device, 64);
  REQUIRE(arena.activate(look(plan), Arena::Pages::kNow).ok());
  (void)arena.allocate(7, 1, 0);  // lane 1 exists
  arena.mark(0);
  void* a = arena.allocate(128, 0, 1).pointer;
  REQUIRE(a);
  REQUIRE(arena.free(a).found);
  void* b = arena.allocate(64, 0, 2).pointer;
  REQUIRE(b);
  REQUIRE(arena.free(b).found);
  void* c = arena.allocate(64, 0, 3).pointer;
  REQUIRE(c);                          // bytes 64..128, live
  auto d = arena.allocate(128, 1, 4);  // lane 1: bytes 0..128?
  CHECK(d.pointer == nullptr);
  CHECK(arena.is_valid() == "");
}

// a thread takes the only lane over before the recorded one asked for anything.
TEST_CASE("One lane of the plan serves one thread", "[arena][lanes]") {
  const Plan plan = plan_of({sequence_of({{0, 128, 1}, {128, 64, 1}, {64, 64, 1}, {128, 50, 1}})});
  const auto device = make_host_device(Bytes{1} << 30);
  test::LoneArena arena(*device, 64);
  REQUIRE(arena.activate(look(plan), Arena::Pages::kNow).ok());
  arena.mark(5);                  // the step runs on lane 5 here
  (void)arena.allocate(7, 0, 9);  // now the recorded key asks for something
  CHECK(!arena.aligned(0));
  for (Bytes s : {128, 64, 64, 50}) {
    void* p = arena.allocate(s, 5, 1).pointer;
    REQUIRE(p);
    REQUIRE(arena.free(p).found);
  }
  arena.mark(5);  // aligns every bound lane
  for (Bytes s : {128, 64}) {
    void* p = arena.allocate(s, 5, 1).pointer;
    REQUIRE(p);
    REQUIRE(arena.free(p).found);
  }
  void* c = arena.allocate(64, 5, 3).pointer;
  REQUIRE(c);
  auto d = arena.allocate(128, 0, 4);  // the other thread
  CHECK(d.pointer == nullptr);
  CHECK(arena.is_valid() == "");
}

// the step moves to another stream at a mark.
TEST_CASE("A step that moves to another stream waits for what the one before has queued",
          "[arena][lanes]") {
  test::SimulatedDevice device;
  const Plan plan = plan_of({sequence_of({{0, 128, 1}, {128, 64, 1}})});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(plan), Arena::Pages::kNow).ok());
  arena.mark(0);
  auto step = [&](LaneKey lane) {
    for (Bytes s : {128, 64}) {
      auto o = arena.allocate(s, lane, 1);
      REQUIRE(o.pointer);
      CHECK(device.hand_out(lane, o.pointer, o.size));
      device.touch(lane, o.pointer, o.size);
      REQUIRE(arena.free(o.pointer).found);
    }
  };
  step(0);
  arena.mark(7);  // another stream runs the step from here on
  step(7);
  CHECK(device.violations().empty());
}
TEST_CASE("A step that alternates between two streams is served on both", "[arena][lanes]") {
  test::SimulatedDevice device;
  const Plan plan = plan_of({sequence_of({{0, 128, 2}, {128, 64, 2}, {192, 60, 1}})});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(plan), Arena::Pages::kNow).ok());
  for (int i = 0; i < 10; ++i) {
    const LaneKey lane = 3 + static_cast<LaneKey>(i % 2);
    arena.mark(lane);
    for (Bytes s : {128, 64, 60}) {
      const auto o = arena.allocate(s, lane, 1);
      REQUIRE(o.served == Served::kHit);
      CHECK(device.hand_out(lane, o.pointer, o.size));
      REQUIRE(arena.free(o.pointer).found);
    }
  }
  CHECK(device.violations().empty());
}
TEST_CASE("A block of the stream before the move is guarded when it is freed", "[arena][lanes]") {
  test::SimulatedDevice device;
  const Plan plan = plan_of({sequence_of({{0, 128, 2}, {128, 64, 1}})});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(plan), Arena::Pages::kNow).ok());
  arena.mark(0);
  auto a = arena.allocate(128, 0, 1);
  REQUIRE(a.pointer);
  device.hand_out(0, a.pointer, a.size);
  arena.mark(7);
  device.touch(0, a.pointer, a.size);    // its owner's stream still uses it
  REQUIRE(arena.free(a.pointer).found);  // PyTorch frees say no stream
  auto b = arena.allocate(128, 7, 2);
  REQUIRE(b.pointer == a.pointer);
  CHECK(device.hand_out(7, b.pointer, b.size));
}

// S5. A block of an earlier plan, freed on its own lane after the change, then another lane's.
TEST_CASE("The free of a block of an earlier plan guards its bytes", "[arena][lanes]") {
  test::SimulatedDevice device;
  const Plan one =
      plan_of({sequence_of({{0, 128, 1}, {128, 64, 1}}), sequence_of({{192, 64, 1}}, 1)});
  const Plan two =
      plan_of({sequence_of({{128, 64, 1}, {192, 64, 1}}), sequence_of({{0, 64, 1}}, 1)});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(one), Arena::Pages::kNow).ok());
  arena.mark(0);
  arena.mark(1);
  auto a = arena.allocate(128, 0, 1);
  REQUIRE(a.pointer);
  device.hand_out(0, a.pointer, a.size);
  auto x = arena.allocate(64, 1, 1);
  REQUIRE(x.pointer);
  REQUIRE(arena.free(x.pointer).found);
  REQUIRE(arena.activate(look(two), Arena::Pages::kNow).ok());
  arena.mark(0);
  arena.mark(1);
  device.touch(0, a.pointer, a.size);  // lane 0 goes on using its block
  REQUIRE(arena.free(a.pointer).found);
  auto b = arena.allocate(64, 1, 2);
  REQUIRE(b.pointer == a.pointer);
  CHECK(device.hand_out(1, b.pointer, b.size));
  CHECK(device.violations().empty());
}

TEST_CASE("A lane of a new plan waits for what another has queued on its bytes", "[arena][lanes]") {
  test::SimulatedDevice device;
  const Plan one =
      plan_of({sequence_of({{0, 128, 1}, {128, 64, 1}}), sequence_of({{192, 64, 1}}, 1)});
  const Plan two =
      plan_of({sequence_of({{128, 64, 1}, {192, 64, 1}}), sequence_of({{0, 64, 1}}, 1)});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(one), Arena::Pages::kNow).ok());
  arena.mark(0);
  const auto a = arena.allocate(128, 0, 1);
  REQUIRE(a.pointer);
  device.hand_out(0, a.pointer, a.size);
  REQUIRE(arena.free(a.pointer).found);  // on its own lane: leaves no guard
  REQUIRE(arena.activate(look(two), Arena::Pages::kNow).ok());
  arena.mark(1);
  const auto b = arena.allocate(64, 1, 2);
  REQUIRE(b.pointer == a.pointer);
  CHECK(device.hand_out(1, b.pointer, b.size));
}

// bytes that no slot has, lent to one lane and then to another.
TEST_CASE("Bytes lent to two lanes in turn are guarded", "[arena][lanes]") {
  test::SimulatedDevice device;
  const Plan plan = plan_of(
      {sequence_of({{0, 64, 1}, {0, 60, 1}}), sequence_of({{192, 64, 1}, {192, 60, 1}}, 1)});
  test::LoneArena arena(device, 64);  // 64..192 belong to nobody
  REQUIRE(arena.activate(look(plan), Arena::Pages::kNow).ok());
  arena.mark(0);
  arena.mark(1);
  auto keep0 = arena.allocate(64, 0, 1);
  auto keep1 = arena.allocate(64, 1, 2);
  REQUIRE((keep0.pointer && keep1.pointer));
  auto a = arena.allocate(60, 0, 3);
  REQUIRE(a.served == Served::kLent);
  CHECK(device.hand_out(0, a.pointer, a.size));
  device.touch(0, a.pointer, a.size);
  REQUIRE(arena.free(a.pointer).found);
  auto b = arena.allocate(60, 1, 4);
  REQUIRE(b.served == Served::kLent);
  CHECK(b.pointer == a.pointer);
  CHECK(device.hand_out(1, b.pointer, b.size));
}

// pages given back under queued work.
TEST_CASE("A smaller plan gives pages back when work on them is done", "[arena][lanes]") {
  test::SimulatedDevice device;
  const Plan big = plan_of({sequence_of({{0, 64, 1}, {4096, 4096, 1}})});
  const Plan small = plan_of({sequence_of({{0, 64, 1}})});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(big), Arena::Pages::kNow).ok());
  arena.mark(0);
  (void)arena.allocate(64, 0, 1);
  auto a = arena.allocate(4096, 0, 1);
  REQUIRE(a.pointer);
  device.hand_out(0, a.pointer, a.size);
  device.touch(0, a.pointer, a.size);
  REQUIRE(arena.free(a.pointer).found);
  REQUIRE(arena.activate(look(small), Arena::Pages::kNow).ok());
  CHECK(arena.committed() == 8192);
  CHECK(arena.give_back() == 4096);
  CHECK(arena.committed() == 4096);
  CHECK(device.violations().empty());
}
TEST_CASE("A smaller plan keeps pages that a block of the plan before lies on", "[arena][lanes]") {
  test::SimulatedDevice device;
  const Plan big = plan_of({sequence_of({{0, 64, 1}, {4096, 4096, 1}})});
  const Plan small = plan_of({sequence_of({{0, 64, 1}})});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(big), Arena::Pages::kNow).ok());
  arena.mark(0);
  (void)arena.allocate(64, 0, 1);
  void* const kept = arena.allocate(4096, 0, 1).pointer;
  REQUIRE(kept != nullptr);
  REQUIRE(arena.activate(look(small), Arena::Pages::kNow).ok());
  CHECK(arena.committed() == 8192);
  REQUIRE(arena.free(kept).found);
  CHECK(arena.is_valid() == "");
}
TEST_CASE("An idle arena gives pages back when work on them is done", "[arena][lanes]") {
  test::SimulatedDevice device;
  const Plan plan = plan_of({sequence_of({{0, 4096, 1}})});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(plan), Arena::Pages::kNow).ok());
  arena.mark(0);
  auto a = arena.allocate(4096, 0, 1);
  REQUIRE(a.pointer);
  device.hand_out(0, a.pointer, a.size);
  device.touch(0, a.pointer, a.size);
  REQUIRE(arena.free(a.pointer).found);
  CHECK(arena.give_back() == 4096);
  CHECK(device.violations().empty());
}
TEST_CASE("Pages that a captured graph pins are not given back", "[arena][lanes]") {
  test::SimulatedDevice device;
  const Plan big = plan_of({sequence_of({{0, 64, 1}, {4096, 4096, 1}})});
  const Plan small = plan_of({sequence_of({{0, 64, 1}})});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(big), Arena::Pages::kNow).ok());
  arena.mark(0);
  (void)arena.free(arena.allocate(64, 0, 1).pointer);
  void* const used = arena.allocate(4096, 0, 2).pointer;
  REQUIRE(arena.pin(used));
  REQUIRE(arena.free(used).found);
  REQUIRE(arena.activate(look(small), Arena::Pages::kNow).ok());
  CHECK(arena.committed() == 8192);
  CHECK(arena.give_back() == 4096);
  CHECK(arena.committed() == 4096);
  CHECK(arena.is_valid() == "");
}

// a larger range is refused; the plan before stays, says activate().
TEST_CASE("A larger range that is refused leaves no plan on memory that is gone",
          "[arena][lanes]") {
  test::SimulatedDevice device(test::SimulatedDevice::Options{.maps_pages = false});
  const Plan one = plan_of({sequence_of({{0, 64, 1}, {64, 64, 1}})});
  const Plan two = plan_of({sequence_of({{0, 64, 1}, {1 << 20, 64, 1}})});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(one), Arena::Pages::kNow).ok());
  arena.mark(0);
  device.fail_call(1, {Status::Code::kOutOfMemory, "reserve"}, test::CallKind::kReserve, true);
  REQUIRE(!arena.activate(look(two), Arena::Pages::kNow).ok());
  device.fail_none();
  auto b = arena.allocate(64, 0, 1);
  INFO("pointer " << b.pointer << " contains " << arena.contains(b.pointer));
  CHECK((b.pointer == nullptr || reinterpret_cast<Bytes>(b.pointer) > 4096));
}

TEST_CASE("A mark in a forked child makes no driver call", "[arena][lanes]") {
  test::SimulatedDevice device;
  Allocator::Options options;
  options.start_threads = false;
  test::CheckedAllocator allocator(device, options);
  void* p = allocator.allocate(1000, 1);
  void* q = allocator.allocate(1000, 1);
  allocator.record_use(q, 2);
  allocator.free(q);  // an event in the pool
  (void)p;
  CHECK(test::holds_in_forked_child(allocator, [&] {
    const auto before = device.driver_calls();
    allocator.mark_step(1);
    return device.driver_calls() == before;
  }));
}

TEST_CASE("A request in a forked child makes no driver call", "[arena][lanes]") {
  const auto device = make_host_device(Bytes{1} << 30);
  Allocator::Options options;
  options.start_threads = false;
  options.config.mode = Mode::kLearn;
  test::CheckedAllocator allocator(*device, options);
  // no marks: steps of 8 requests
  std::uint64_t n = 0;
  while (!allocator.plan() && n < 100000) {
    void* p = allocator.allocate(64 * (1 + n % 8), 1);
    allocator.free(p);
    ++n;
  }
  REQUIRE(allocator.plan());
  while (allocator.stats().hits == 0 && n < 200000) {
    void* p = allocator.allocate(64 * (1 + n % 8), 1);
    allocator.free(p);
    ++n;
  }
  REQUIRE(allocator.stats().hits == 1);
  CHECK(test::holds_in_forked_child(allocator, [&] {
    const auto before = device->driver_calls();
    for (int i = 0; i < 20; ++i) {
      try {
        (void)allocator.allocate(64, 1);
      } catch (const Error&) {
      }
    }
    return device->driver_calls() == before;
  }));
}

TEST_CASE("A use on the own lane is ignored", "[arena][lanes]") {
  test::SimulatedDevice device;
  const Plan plan = plan_of({sequence_of({{0, 128, 1}, {128, 64, 1}})});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(plan), Arena::Pages::kNow).ok());
  arena.mark(0);
  void* p = arena.allocate(128, 0, 1).pointer;
  arena.record_use(p, 0);
  Bytes asked = 0;
  LaneKey owner = 1;
  REQUIRE(arena.take_back(p, &asked, &owner));
  CHECK(asked == 128);
  CHECK(owner == 0);
  CHECK(device.calls(test::CallKind::kRecord) == 0);
}

TEST_CASE("A pool exhausted between steps does not cost the plan", "[arena][lanes]") {
  const auto device = make_host_device(Bytes{1} << 20);
  Allocator::Options options;
  options.start_threads = false;
  options.config.mode = Mode::kLearn;
  test::CheckedAllocator allocator(*device, options);
  auto step = [&] {
    for (int i = 0; i < 8; ++i) allocator.free(allocator.allocate(32768 * (1 + i % 8), 1));
    allocator.mark_step(1);
  };
  for (int i = 0; i < 10; ++i) step();
  REQUIRE(allocator.plan());
  REQUIRE(allocator.stats().hits > 0);
  void* big = allocator.allocate(900 << 10, 1);  // e.g. a checkpoint between two steps
  allocator.free(big);
  for (int i = 0; i < 200; ++i) step();
  const auto hits = allocator.stats().hits;
  for (int i = 0; i < 10; ++i) step();
  CHECK(allocator.plan().has_value());
  CHECK(allocator.stats().hits > hits);
}

TEST_CASE("The arena keeps to the memory limit", "[arena][lanes]") {
  const auto device = make_host_device(Bytes{1} << 30);
  Allocator::Options options;
  options.start_threads = false;
  options.config.mode = Mode::kOff;
  options.config.memory_limit = 1 << 20;
  test::CheckedAllocator allocator(*device, options);
  const Plan plan = plan_of({sequence_of({{0, 64 << 20, 1}})});
  try {
    allocator.load_plan(plan);
  } catch (const Error&) {
  }
  CHECK(allocator.stats().reserved_peak <= Bytes{1} << 20);
}

TEST_CASE("A plan without memory stays so when another is refused", "[arena][lanes]") {
  test::SimulatedDevice device;
  const Plan one = plan_of({sequence_of({{0, 1 << 20, 1}, {1 << 20, 64, 1}})});
  const Plan two = plan_of({sequence_of({{0, 64, 1}, {2 << 20, 64, 1}})});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(one), Arena::Pages::kAsUsed).ok());
  REQUIRE(arena.committed() == 0);
  device.fail_call(1, {Status::Code::kOutOfMemory, "commit"}, test::CallKind::kCommit, true);
  REQUIRE(!arena.activate(look(two), Arena::Pages::kNow).ok());
  device.fail_none();
  CHECK(arena.plan() != nullptr);
  CHECK(arena.committed() == 0);
}
TEST_CASE("An active plan stays when another is refused and the device goes on failing",
          "[arena][lanes]") {
  test::SimulatedDevice device;
  const Plan one = plan_of({sequence_of({{0, 1 << 20, 1}, {1 << 20, 64, 1}})});
  const Plan two = plan_of({sequence_of({{0, 64, 1}, {2 << 20, 64, 1}})});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(one), Arena::Pages::kNow).ok());
  device.fail_call(1, {Status::Code::kOutOfMemory, "commit"}, test::CallKind::kCommit, true);
  REQUIRE(!arena.activate(look(two), Arena::Pages::kNow).ok());
  CHECK(arena.plan() != nullptr);
}

TEST_CASE("A mark during a capture queries no event of the capturing lane", "[arena][lanes]") {
  test::SimulatedDevice device;
  const Plan plan = plan_of({sequence_of({{0, 128, 1}, {128, 64, 1}})});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(plan), Arena::Pages::kNow).ok());
  arena.mark(0);
  void* p = arena.allocate(128, 0, 1).pointer;
  arena.record_use(p, 3);
  arena.free(p);
  device.set_capturing(3, true);
  arena.mark(0);
  for (auto& v : device.violations()) UNSCOPED_INFO(v);
  CHECK(device.violations().empty());
}
// A mark takes the lane to the fork; the root's slot there is still live from the step
// before, and looks as if it was born now. The branch leaves it aside and has its bytes.
TEST_CASE("A branch taken where a jump ended shares no byte with the slot that it leaves aside",
          "[arena][lanes]") {
  Sequence root =
      sequence_of({{256, 64, 1}, {320, 60, 1}, {384, 61, 1}, {0, 128, 1}, {256, 50, 1}});
  root.marks = {0, 3};
  Sequence branch;
  branch.lane = 0;
  branch.parent = 0;
  branch.fork = 3;
  branch.period = 4;
  branch.slots.push_back({.offset = 64, .requested = 63, .size = 64, .birth = 3, .length = 1});
  const Plan plan = plan_of({root, branch});
  const auto device = make_host_device(Bytes{1} << 30);
  test::LoneArena arena(*device, 64);
  REQUIRE(arena.activate(look(plan), Arena::Pages::kNow).ok());
  arena.mark(0);
  for (Bytes s : {64, 60, 61}) REQUIRE(arena.free(arena.allocate(s, 0, 1).pointer).found);
  void* kept = arena.allocate(128, 0, 2).pointer;  // bytes 0..128, overstays
  REQUIRE(kept != nullptr);
  REQUIRE(arena.free(arena.allocate(50, 0, 3).pointer).found);
  for (Bytes s : {64, 60})
    REQUIRE(arena.free(arena.allocate(s, 0, 4).pointer).found);  // the next step
  arena.mark(0);                            // nearest expected mark: before tick 3
  const auto b = arena.allocate(63, 0, 5);  // the branch: bytes 64..128
  CHECK(b.pointer != static_cast<std::byte*>(kept) + 64);
  CHECK(arena.is_valid() == "");
}

TEST_CASE("The plan before is served from memory that is committed", "[arena][lanes]") {
  test::SimulatedDevice device(test::SimulatedDevice::Options{.total_bytes = 1 << 20});
  const Plan one = plan_of({sequence_of({{0, 64, 1}, {64, 64, 1}})});
  const Plan large = plan_of({sequence_of({{0, Bytes{1} << 30, 1}})});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(one), Arena::Pages::kNow).ok());
  arena.mark(0);
  REQUIRE_FALSE(arena.activate(look(large), Arena::Pages::kNow).ok());
  arena.mark(0);
  const bool hit = arena.allocate(64, 0, 1).pointer != nullptr;
  CHECK((!hit || arena.committed() >= 128));
  CHECK((!hit || device.committed() >= 128));
}

TEST_CASE("A free while a stream that used the block captures records no event in the capture",
          "[arena][lanes]") {
  test::SimulatedDevice device;
  const Plan plan = plan_of({sequence_of({{0, 128, 1}, {128, 64, 1}})});
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(plan), Arena::Pages::kNow).ok());
  arena.mark(0);
  void* p = arena.allocate(128, 0, 1).pointer;
  arena.record_use(p, 3);
  device.set_capturing(3, true);
  const auto before = device.calls(test::CallKind::kRecord);
  arena.free(p);
  CHECK(device.calls(test::CallKind::kRecord) == before);
}
