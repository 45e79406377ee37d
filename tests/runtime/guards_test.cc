// What blocks that other lanes use cost, and that nothing of them stays.

#include "csrc/runtime/guards.h"

#include "csrc/device/lane_events.h"
#include "csrc/runtime/allocator.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_plan.h"

#include <vector>

using namespace berth;
using test::CallKind;
using test::plan_of;
using test::sequence_of;

namespace {

constexpr int kBlocks = 2000;

// A step of kBlocks requests, all of them alive at its end, each on bytes of its own.
struct Steps {
  Steps() {
    Allocator::Options options;
    options.start_threads = false;
    options.config.mode = Mode::kOff;
    allocator = std::make_unique<test::CheckedAllocator>(device, options);
    std::vector<test::SlotSpec> slots;
    for (int i = 0; i < kBlocks; ++i)
      slots.push_back(
          {Bytes(i) * 512, 512 - Bytes(i % 7), static_cast<std::uint32_t>(kBlocks - i)});
    allocator->load_plan(plan_of({sequence_of(slots)}));
    allocator->mark_step(0);
  }
  void run(bool used_elsewhere) {
    for (int i = 0; i < kBlocks; ++i) {
      blocks[i] = allocator->allocate(512 - Bytes(i % 7), 0);
      if (!used_elsewhere) continue;
      allocator->record_use(blocks[i], 5);
      device.touch(5, blocks[i], 64);
    }
    for (void* const block : blocks) (void)allocator->free(block);
  }

  test::SimulatedDevice device;
  std::unique_ptr<test::CheckedAllocator> allocator;
  std::vector<void*> blocks = std::vector<void*>(kBlocks);
};

}  // namespace

TEST_CASE("Without marks guards go by the requests that they slow down", "[arena][guards]") {
  Steps steps;
  steps.run(true);
  CHECK(steps.device.live_events() > 0);
  REQUIRE(steps.device.synchronize_all().ok());
  steps.run(false);
  CHECK(steps.device.live_events() == 0);
  const std::uint64_t calls = steps.device.driver_calls();
  steps.run(false);
  CHECK(steps.device.driver_calls() == calls);
  CHECK(steps.allocator->stats().hits == 3 * kBlocks);
}

TEST_CASE("However many blocks a busy lane uses, few events are held and few asked for",
          "[arena][guards]") {
  Steps steps;
  for (int step = 0; step < 3; ++step) steps.run(true);
  CHECK(steps.device.live_events() <= LaneEvents::kMostALane);
  CHECK(steps.device.calls(CallKind::kQuery) <= 3 * kBlocks / LaneEvents::kRequestsBetween);
  CHECK(steps.device.calls(CallKind::kWait) <= 3 * kBlocks);
  CHECK(steps.allocator->stats().hits == 3 * kBlocks);
  CHECK(steps.allocator->is_valid() == "");
}

TEST_CASE("A slot on the bytes of many guards of a lane waits for it once", "[arena][guards]") {
  test::SimulatedDevice device;
  Allocator::Options options;
  options.start_threads = false;
  options.config.mode = Mode::kOff;
  test::CheckedAllocator allocator(device, options);
  std::vector<test::SlotSpec> slots;
  for (std::uint32_t i = 0; i < 100; ++i)
    slots.push_back({Bytes(i) * 64, 64 - Bytes(i % 7), 100 - i});
  slots.push_back({0, 6400, 1});
  allocator.load_plan(plan_of({sequence_of(slots)}));
  allocator.mark_step(0);
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) {
    blocks.push_back(allocator.allocate(64 - Bytes(i % 7), 0));
    allocator.record_use(blocks.back(), 5);
    device.touch(5, blocks.back(), 64);
  }
  for (void* const block : blocks) (void)allocator.free(block);
  void* const all = allocator.allocate(6400, 0);
  REQUIRE(all == blocks.front());
  CHECK(device.hand_out(0, all, 6400));
  CHECK(device.calls(CallKind::kWait) == 1);
}

TEST_CASE("A guard that a later one of its lane touches and does not cover stays",
          "[arena][guards]") {
  test::SimulatedDevice device;
  LaneEvents events(device);
  Guards guards(events);
  REQUIRE(guards.add({0, 128}, 5, Guards::Binds::kAll));
  REQUIRE(guards.add({64, 192}, 5, Guards::Binds::kAll));
  CHECK(guards.size() == 2);
  REQUIRE(guards.wait(0, {0, 64}, Guards::Binds::kAll));
  CHECK(device.calls(CallKind::kWait) == 1);
  REQUIRE(guards.add({0, 192}, 5, Guards::Binds::kAll));  // covers both
  CHECK(guards.size() == 1);
}

TEST_CASE("The guards of a lane are bounded", "[arena][guards]") {
  test::SimulatedDevice device;
  LaneEvents events(device);
  Guards guards(events);
  for (Bytes i = 0; i <= Guards::kMostALane; ++i)
    REQUIRE(guards.add({128 * i, 128 * i + 64}, 5, Guards::Binds::kAll));
  CHECK(guards.size() == 1);
  REQUIRE(guards.wait(0, {64, 128}, Guards::Binds::kAll));  // which nothing had guarded
  CHECK(device.calls(CallKind::kWait) == 1);
}
