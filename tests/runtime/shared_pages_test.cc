// How an arena and a pool share what they hold: within the limit, and once.

#include "csrc/device/host_device.h"
#include "csrc/plan/file.h"
#include "csrc/runtime/allocator.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_plan.h"
#include "tests/support/temporary_folder.h"

#include <berth/error.h>
#include <berth/warnings.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

using namespace berth;
using test::CallKind;
using test::plan_of;
using test::sequence_of;

namespace {

constexpr Bytes kSmallPage = Bytes{64} << 10;
constexpr Bytes kMiB = Bytes{1} << 20;
constexpr Bytes kFar = Bytes{256} << 20;

// `count` slots of 1 MiB beside each other, all of them alive at the step's end.
Plan side_by_side(std::uint32_t count) {
  std::vector<test::SlotSpec> slots;
  for (std::uint32_t i = 0; i < count; ++i) slots.push_back({kMiB * i, kMiB - i, count - i});
  return plan_of({sequence_of(slots)});
}

// Serves a plan from a file, as a program does that starts.
struct Served {
  Served(Device& device, const Plan& plan, Bytes limit = 0,
         const std::atomic<int>* captures = nullptr) {
    write_plan(folder / "step.plan", plan);
    Allocator::Options options;
    options.start_threads = false;
    options.config.mode = Mode::kServe;
    options.config.plan = folder / "step.plan";
    options.config.memory_limit = limit;
    options.captures = captures;
    allocator = std::make_unique<test::CheckedAllocator>(device, options);
  }
  void free(void* block) { REQUIRE(allocator->free(block) == Allocator::FreeOutcome::kDone); }

  test::TemporaryFolder folder;
  std::unique_ptr<test::CheckedAllocator> allocator;
};

}  // namespace

TEST_CASE("Where no mark comes the arena is filled by requests", "[runtime][pages]") {
  test::SimulatedDevice device;
  Served served(device, side_by_side(8));
  for (int i = 0; i < 8; ++i) served.free(served.allocator->allocate(kMiB, 0));
  served.allocator->mark_step(0);  // commits the arena, and is the last one
  const auto step = [&] {
    std::vector<void*> blocks;
    for (Bytes i = 0; i < 8; ++i) blocks.push_back(served.allocator->allocate(kMiB - i, 0));
    served.free(served.allocator->allocate(12 * kMiB, 7));
    for (void* const block : blocks) served.free(block);
  };
  for (int i = 0; i < 3; ++i) step();
  const std::uint64_t calls = device.driver_calls();
  for (int i = 0; i < 100; ++i) step();
  CHECK(device.driver_calls() == calls);
  CHECK(served.allocator->is_valid() == "");
}

TEST_CASE("An arena whose lanes are over is not filled", "[runtime][pages]") {
  test::SimulatedDevice device;
  Served served(device, side_by_side(8));
  served.free(served.allocator->allocate(48 * kMiB, 7));  // so much may be held
  (void)served.allocator->trim();
  served.allocator->mark_step(0);
  void* const first = served.allocator->allocate(kMiB, 0);
  for (int look = 0; look < 2; ++look) {  // the first one finds that block's hit
    (void)served.allocator->trim();
    for (int i = 0; i < 20; ++i) served.free(served.allocator->allocate(kMiB, 7));
  }
  (void)served.allocator->trim();
  const Bytes reserved = served.allocator->stats().reserved;
  for (int i = 0; i < 100; ++i) served.free(served.allocator->allocate(kMiB, 7));
  CHECK(served.allocator->stats().reserved <= reserved + 2 * kMiB);
  served.free(first);
}

TEST_CASE("While a graph is captured no arena is filled", "[runtime][pages]") {
  test::SimulatedDevice device;
  std::atomic<int> captures{0};
  Served served(device, side_by_side(8), 0, &captures);
  served.free(served.allocator->allocate(48 * kMiB, 7));  // so much may be held
  (void)served.allocator->trim();
  served.allocator->mark_step(0);
  void* const first = served.allocator->allocate(kMiB, 0);
  (void)served.allocator->trim();
  captures = 1;
  const Stats before = served.allocator->stats();
  void* const second = served.allocator->allocate(kMiB - 1, 0);
  for (int i = 0; i < 20; ++i) served.free(served.allocator->allocate(kMiB, 7));
  captures = 0;
  const Stats after = served.allocator->stats();
  CHECK(after.reserved <= before.reserved + 2 * kMiB);
  served.free(first);
  served.free(second);
}

TEST_CASE("An arena that fills and the pool keep to the limit together", "[runtime][pages]") {
  test::SimulatedDevice device;
  Served served(device, side_by_side(40), 64 * kMiB);
  served.allocator->mark_step(0);
  std::vector<void*> blocks;
  for (Bytes i = 0; i < 40; ++i) {
    for (const LaneKey lane : {7, 0}) {
      try {
        blocks.push_back(served.allocator->allocate(kMiB - i, lane));
      } catch (const OutOfMemory&) {
      }
      REQUIRE(device.committed() <= 64 * kMiB);
      REQUIRE(served.allocator->stats().reserved_peak <= 64 * kMiB);
    }
  }
  CHECK(blocks.size() == 64);
  for (void* const block : blocks) served.free(block);
  served.allocator->mark_step(0);
  served.allocator->mark_step(0);
  CHECK(device.committed() <= 64 * kMiB);
  CHECK(served.allocator->is_valid() == "");
}

TEST_CASE("What an arena has not taken yet serves the pool before memory is out",
          "[runtime][pages]") {
  test::SimulatedDevice device;
  Served served(device, side_by_side(40), 64 * kMiB);
  served.allocator->mark_step(0);
  std::vector<void*> blocks;
  for (int i = 0; i < 62; ++i) blocks.push_back(served.allocator->allocate(kMiB, 7));
  CHECK(device.committed() <= 64 * kMiB);
  for (void* const block : blocks) served.free(block);
}

// Halves of two pages live. The others are too small for a page, and the plan needs them soon.
TEST_CASE("The bytes of a plan's next request serve another one before memory is out",
          "[runtime][pages]") {
  constexpr Bytes kPage = 2 * kMiB;
  test::SimulatedDevice device({.page_bytes = kPage, .maps_pages = true});
  const Plan plan = plan_of(
      {sequence_of({{0, kMiB, 4}, {kPage, kMiB, 3}, {kMiB, kMiB - 1, 2}, {3 * kMiB, kMiB, 1}})});
  Served served(device, plan, 2 * kPage);
  const auto& allocator = served.allocator;
  for (int step = 0; step < 3; ++step) {
    std::vector<void*> blocks;
    for (const Bytes size : {kMiB, kMiB, kMiB - 1, kMiB})
      blocks.push_back(allocator->allocate(size, 0));
    for (void* const block : blocks) served.free(block);
    allocator->mark_step(0);
  }
  std::vector<void*> blocks;
  for (int i = 0; i < 2; ++i) blocks.push_back(allocator->allocate(kMiB, 0));
  const std::uint64_t hits = allocator->stats().hits;
  for (int i = 0; i < 2; ++i) blocks.push_back(allocator->allocate(kMiB, 7));
  CHECK_THROWS_AS(allocator->allocate(kMiB, 7), OutOfMemory);
  CHECK(allocator->stats().hits == hits);
  for (void* const block : blocks) served.free(block);
  CHECK(allocator->is_valid() == "");
}

// No page of such a device has two addresses, so nobody else can use them.
TEST_CASE("Pages that an earlier plan needed go when what lived there is free",
          "[runtime][pages]") {
  constexpr Bytes kPage = 2 * kMiB, kLarge = 20 * kPage;
  test::SimulatedDevice device({.page_bytes = kPage, .maps_pages = true, .aliases = false});
  Served served(device, plan_of({sequence_of({{0, kPage, 2}, {kPage, kLarge, 1}})}));
  const auto& allocator = served.allocator;
  const auto request = [&](Bytes size) { return allocator->allocate(size, 0); };
  void* kept = nullptr;
  for (int step = 0; step < 3; ++step) {
    if (step > 0) {
      served.free(kept);
      allocator->mark_step(0);
    }
    void* const small = request(kPage);
    kept = request(kLarge);
    served.free(small);
  }
  REQUIRE(allocator->stats().hits >= 4);
  (void)allocator->trim();  // what the pool had for the first step
  allocator->load_plan(plan_of({sequence_of({{0, kPage, 1}})}));
  CHECK(device.committed() >= kLarge);
  served.free(kept);
  void* const beside = allocator->allocate(kLarge, 7);
  for (int step = 0; step < 4; ++step) {
    served.free(request(kPage));
    allocator->mark_step(0);
  }
  CHECK(device.committed() <= kLarge + 2 * kPage);
  CHECK(allocator->is_valid() == "");
  served.free(beside);
}

TEST_CASE("Only bytes under slots are committed", "[runtime][pages]") {
  const Plan plan = plan_of({sequence_of({{0, kMiB, 2}, {kFar, kMiB, 1}})});
  SECTION("by a plan that is loaded") {
    test::SimulatedDevice device;
    Allocator::Options options;
    options.start_threads = false;
    options.config.mode = Mode::kOff;
    test::CheckedAllocator allocator(device, options);
    allocator.load_plan(plan);
    CHECK(device.committed() == 0);  // they come with the first blocks
    allocator.mark_step(0);
    void* const first = allocator.allocate(kMiB, 0);
    void* const second = allocator.allocate(kMiB, 0);
    CHECK(device.committed() == 2 * kMiB);
    CHECK(static_cast<std::byte*>(second) - static_cast<std::byte*>(first) == kFar);
    CHECK(allocator.is_valid() == "");
    (void)allocator.free(first);
    (void)allocator.free(second);
    CHECK(allocator.trim() == 2 * kMiB);
    CHECK(device.committed() == 0);
  }
  SECTION("by one that takes its memory over") {
    test::SimulatedDevice device;
    Served served(device, plan);
    // Its arena is larger than what lives at a time, but not than what lived.
    served.free(served.allocator->allocate(4 * kMiB, 7));
    (void)served.allocator->trim();
    for (int i = 0; i < 20; ++i) {
      served.allocator->mark_step(0);
      served.free(served.allocator->allocate(kMiB, 0));
      served.free(served.allocator->allocate(kMiB, 0));
    }
    const std::uint64_t hits = served.allocator->stats().hits;
    served.allocator->mark_step(0);
    served.free(served.allocator->allocate(kMiB, 0));
    served.free(served.allocator->allocate(kMiB, 0));
    CHECK(served.allocator->stats().hits == hits + 2);
    CHECK(device.committed() <= 3 * kMiB);
  }
}

// Weights and states of an optimizer: they would keep bytes of the arena from its slots for good.
TEST_CASE("What a first step keeps does not lie in the arena of a plan that is loaded",
          "[runtime][pages]") {
  test::SimulatedDevice device({.page_bytes = kSmallPage});
  Allocator::Options options;
  options.start_threads = false;
  options.config.mode = Mode::kOff;
  options.pool.growth_bytes = kSmallPage;
  test::CheckedAllocator allocator(device, options);
  allocator.load_plan(plan_of({sequence_of({{0, kMiB, 2}, {kMiB, kMiB, 1}})}));
  std::vector<void*> kept;
  for (int i = 0; i < 3; ++i) kept.push_back(allocator.allocate(kMiB / 2, 0));
  for (int step = 0; step < 4; ++step) {
    allocator.mark_step(0);
    void* const first = allocator.allocate(kMiB, 0);
    void* const second = allocator.allocate(kMiB, 0);
    (void)allocator.free(first);
    (void)allocator.free(second);
  }
  CHECK(allocator.stats().hits == 8);
  CHECK(allocator.stats().reserved_peak == 7 * kMiB / 2);
  for (void* const block : kept) (void)allocator.free(block);
}

TEST_CASE("A plan is refused where its arena has no room", "[runtime][pages]") {
  test::SimulatedDevice device({.total_bytes = 4 * kMiB, .page_bytes = kSmallPage});
  Allocator::Options options;
  options.start_threads = false;
  options.config.mode = Mode::kOff;
  options.pool.growth_bytes = kSmallPage;
  test::CheckedAllocator allocator(device, options);
  void* const block = allocator.allocate(3 * kMiB, 0);
  const Plan plan = plan_of({sequence_of({{0, kMiB, 2}, {kMiB, kMiB, 1}})});
  CHECK_THROWS_WITH(
      allocator.load_plan(plan),
      Catch::Contains("an arena of 2.0 MiB cannot be allocated: no more is free; 3.0 MiB"));
  CHECK_FALSE(allocator.plan().has_value());
  (void)allocator.free(block);
  allocator.load_plan(plan);  // what lies free in the pool counts
  CHECK(allocator.plan().has_value());
}

TEST_CASE("The message for an arena beyond the limit names the limit", "[runtime][pages]") {
  std::vector<std::string> texts;
  set_warning_sink([&](std::string_view name, const std::string& text) {
    if (name == "arena-memory") texts.push_back(text);
  });
  test::SimulatedDevice device({.maps_pages = false});
  Served served(device, side_by_side(40), 32 * kMiB);
  set_warning_sink(nullptr);
  REQUIRE(texts.size() == 1);
  CHECK(texts[0].find("BERTH_MEMORY_LIMIT") != std::string::npos);
  CHECK(texts[0].find("32") != std::string::npos);
}

TEST_CASE("An arena far above its bound is one warning", "[runtime][pages]") {
  std::vector<std::string> texts;
  set_warning_sink([&](std::string_view name, const std::string& text) {
    if (name == "arena-loose") texts.push_back(text);
  });
  test::SimulatedDevice device;
  Plan plan = plan_of({sequence_of({{0, kMiB, 2}, {kFar, kMiB, 1}})});
  plan.lower_bound = 2 * kMiB;
  { Served served(device, plan); }
  CHECK(texts.size() == 1);
  plan = side_by_side(40);
  plan.lower_bound = 36 * kMiB;
  { Served served(device, plan); }
  set_warning_sink(nullptr);
  CHECK(texts.size() == 1);
}

TEST_CASE("An arena that lacks pages serves on and asks for those that blocks need",
          "[runtime][pages]") {
  test::SimulatedDevice device;
  Served served(device, side_by_side(8));
  served.allocator->mark_step(0);
  // The last two slots are not asked for: their pages would be more than ever lived.
  const auto step = [&] {
    std::vector<void*> blocks;
    for (Bytes i = 0; i < 6; ++i) blocks.push_back(served.allocator->allocate(kMiB - i, 0));
    for (void* const block : blocks) served.free(block);
    served.allocator->mark_step(0);
  };
  served.free(served.allocator->allocate(3 * kMiB, 0));
  (void)served.allocator->trim();
  served.allocator->mark_step(0);
  std::vector<void*> others;
  for (int i = 0; i < 3; ++i) others.push_back(served.allocator->allocate(kMiB, 7));
  device.fail_call(1, {Status::Code::kOutOfMemory, "test"}, CallKind::kCommit, true);
  CHECK_THROWS_AS(served.allocator->allocate(kMiB, 0), OutOfMemory);
  CHECK(device.fault_met());
  device.fail_none();
  for (void* const block : others) served.free(block);
  served.allocator->mark_step(0);
  for (int i = 0; i < 4; ++i) step();
  REQUIRE(device.synchronize_all().ok());
  step();
  CHECK(device.committed() <= 6 * kMiB + 6 * kMiB / 64 + 4 * device.properties().page_bytes);
  const Stats before = served.allocator->stats();
  const std::uint64_t calls = device.driver_calls();
  for (int i = 0; i < 100; ++i) step();
  CHECK(device.driver_calls() == calls);
  CHECK(served.allocator->stats().hits - before.hits == 600);
}

TEST_CASE("A plan beyond the limit is served as far as there are pages", "[runtime][pages]") {
  test::SimulatedDevice device;
  Served served(device, side_by_side(40), 32 * kMiB);
  for (int step = 0; step < 3; ++step) {
    std::vector<void*> blocks;
    for (Bytes i = 0; i < 30; ++i) blocks.push_back(served.allocator->allocate(kMiB - i, 0));
    for (void* const block : blocks) served.free(block);
    served.allocator->mark_step(0);
    CHECK(device.committed() <= 32 * kMiB);
  }
  CHECK(served.allocator->stats().hits >= 60);
  CHECK(served.allocator->is_valid() == "");
}

TEST_CASE("The switch to a plan holds nothing twice", "[runtime][pages]") {
  test::SimulatedDevice device({.page_bytes = Bytes{256} << 10});
  Served served(device, side_by_side(16));
  const auto step = [&](bool marks) {
    std::vector<void*> blocks;
    for (Bytes i = 0; i < 16; ++i) blocks.push_back(served.allocator->allocate(kMiB - i, 0));
    for (void* const block : blocks) served.free(block);
    if (marks) served.allocator->mark_step(0);
  };
  step(true);
  const Bytes before = served.allocator->stats().reserved_peak;
  for (int i = 0; i < 3; ++i) step(true);
  CHECK(served.allocator->stats().hits == 48);
  CHECK(served.allocator->stats().pages_moved == 64);
  CHECK(served.allocator->stats().reserved_peak == before);
  CHECK(device.committed() <= before);
  REQUIRE(device.synchronize_all().ok());
  step(true);
  const std::uint64_t calls = device.driver_calls();
  for (int i = 0; i < 3; ++i) step(true);
  CHECK(device.driver_calls() == calls);
}

TEST_CASE("The switch to a plan takes the host's pages along as they are", "[runtime][pages]") {
  const auto device = make_host_device(Bytes{1} << 30);
  if (device->properties().move_bytes == 0) return;  // before Linux 5.7
  Served served(*device, side_by_side(16));
  int fresh = 0;
  const auto step = [&](bool marks) {
    std::vector<unsigned char*> blocks;
    for (Bytes i = 0; i < 16; ++i)
      blocks.push_back(static_cast<unsigned char*>(served.allocator->allocate(kMiB - i, 0)));
    fresh = 0;
    for (unsigned char* const block : blocks) {
      fresh += block[kMiB / 2] == 0 ? 1 : 0;
      std::memset(block, 1, kMiB - 16);
    }
    for (void* const block : blocks) served.free(block);
    if (marks) served.allocator->mark_step(0);
  };
  step(false);
  CHECK(fresh == 16);
  const Stats before = served.allocator->stats();
  served.allocator->mark_step(0);
  step(true);
  const Stats after = served.allocator->stats();
  CHECK(after.hits - before.hits == 16);
  CHECK(fresh == 0);
  CHECK(after.pages_moved * device->properties().page_bytes == 16 * kMiB);
  CHECK(after.reserved_peak == before.reserved_peak);
  // 2 MiB at a time at most: fifteen blocks are at the pool's low end, one at its high end.
  CHECK(after.driver_calls - before.driver_calls == 9);
}

TEST_CASE("A step that no plan knows is made of what the idle arena has", "[runtime][pages]") {
  test::SimulatedDevice device({.page_bytes = Bytes{256} << 10});
  Served served(device, side_by_side(16));
  const auto planned = [&] {
    std::vector<void*> blocks;
    for (Bytes i = 0; i < 16; ++i) blocks.push_back(served.allocator->allocate(kMiB - i, 0));
    for (void* const block : blocks) served.free(block);
    served.allocator->mark_step(0);
  };
  const auto other = [&] {
    std::vector<void*> blocks;
    for (const Bytes size :
         {Bytes{64}, Bytes{128}, Bytes{256}, Bytes{512}, 5 * kMiB, 3 * kMiB, 7 * kMiB, kMiB / 4}) {
      blocks.push_back(served.allocator->allocate(size, 0));
      device.hand_out(0, blocks.back(), size);
    }
    for (void* const block : blocks) served.free(block);
    served.allocator->mark_step(0);
  };
  for (int i = 0; i < 3; ++i) planned();
  const Bytes before = served.allocator->stats().reserved_peak;
  for (int i = 0; i < 4; ++i) other();
  REQUIRE(device.synchronize_all().ok());
  other();
  CHECK(served.allocator->stats().reserved_peak <= before + 2 * (Bytes{256} << 10));
  std::uint64_t calls = device.driver_calls();
  for (int i = 0; i < 4; ++i) other();
  CHECK(device.driver_calls() == calls);
  for (int i = 0; i < 2; ++i) planned();
  calls = device.driver_calls();
  const std::uint64_t hits = served.allocator->stats().hits;
  for (int i = 0; i < 4; ++i) planned();
  CHECK(served.allocator->stats().hits == hits + 64);
  CHECK(device.driver_calls() == calls);
  CHECK(device.violations().empty());
}

TEST_CASE("A step that goes astray is made of what the plan needs later, not of more memory",
          "[runtime][pages]") {
  constexpr Bytes kPage = Bytes{256} << 10;
  test::SimulatedDevice device({.page_bytes = kPage});
  // 64 slots of 1 MiB, 16 of them alive at a time.
  std::vector<test::SlotSpec> slots;
  for (std::uint32_t i = 0; i < 64; ++i) slots.push_back({kMiB * (i % 16), kMiB - i, 16});
  Served served(device, plan_of({sequence_of(slots)}));
  const auto step = [&](std::uint32_t astray_from) {
    std::vector<void*> blocks;
    for (std::uint32_t i = 0; i < 64; ++i) {
      if (i >= 16) served.free(blocks[i - 16]);
      // From there on it asks for what the plan does not know.
      const Bytes size = i < astray_from ? kMiB - i : kMiB - 4096 - i;
      blocks.push_back(served.allocator->allocate(size, 0));
      device.hand_out(0, blocks.back(), size);
    }
    for (std::size_t i = 48; i < 64; ++i) served.free(blocks[i]);
    served.allocator->mark_step(0);
  };
  for (int i = 0; i < 20; ++i) step(64);
  const Bytes before = served.allocator->stats().reserved_peak;
  CHECK(before <= served.allocator->stats().live_peak + 2 * kPage);
  for (const std::uint32_t astray_from : {0, 20, 40, 60}) {
    step(astray_from);
    CHECK(served.allocator->is_valid() == "");
  }
  // A few misses may be one change, for which the step's own bytes stay: so many more blocks.
  CHECK(served.allocator->stats().reserved_peak <= before + 4 * kMiB);
  step(64);
  const std::uint64_t hits = served.allocator->stats().hits;
  step(64);
  CHECK(served.allocator->stats().hits == hits + 64);
  CHECK(device.violations().empty());
}

TEST_CASE("All that nothing lives on goes back, plan or not", "[runtime][pages]") {
  test::SimulatedDevice device;
  Served served(device, side_by_side(16));
  const auto step = [&] {
    std::vector<void*> blocks;
    for (Bytes i = 0; i < 16; ++i) blocks.push_back(served.allocator->allocate(kMiB - i, 0));
    for (void* const block : blocks) served.free(block);
    served.allocator->mark_step(0);
  };
  for (int i = 0; i < 3; ++i) step();
  CHECK(served.allocator->trim() != 0);
  CHECK(device.committed() == 0);
  CHECK(served.allocator->stats().reserved == 0);
  const std::uint64_t hits = served.allocator->stats().hits;
  step();
  CHECK(served.allocator->stats().hits == hits + 16);
}

TEST_CASE("After a trim the pages come back that steps use, and no others", "[runtime][pages]") {
  test::SimulatedDevice device;
  Served served(device, side_by_side(64));
  const auto step = [&](Bytes count) {
    std::vector<void*> blocks;
    for (Bytes i = 0; i < count; ++i) blocks.push_back(served.allocator->allocate(kMiB - i, 0));
    for (void* const block : blocks) served.free(block);
    served.allocator->mark_step(0);
    CHECK(served.allocator->is_valid() == "");
  };
  for (int i = 0; i < 3; ++i) step(64);
  REQUIRE(served.allocator->stats().reserved >= 64 * kMiB);
  CHECK(served.allocator->trim() != 0);
  for (int i = 0; i < 20; ++i) step(8);
  CHECK(served.allocator->stats().reserved <= 8 * kMiB);
  for (int i = 0; i < 2; ++i) step(64);
  const std::uint64_t hits = served.allocator->stats().hits;
  step(64);
  CHECK(served.allocator->stats().hits == hits + 64);
  CHECK(device.violations().empty());
}

TEST_CASE("What a program makes before its first step lives beside the arena", "[runtime][pages]") {
  test::SimulatedDevice device;
  Served served(device, side_by_side(16));
  // Holes that the plan's pages could come from, and blocks that live on.
  std::vector<void*> brief, kept;
  for (int i = 0; i < 20; ++i) brief.push_back(served.allocator->allocate(kMiB, 0));
  for (void* const block : brief) served.free(block);
  for (int i = 0; i < 40; ++i) served.free(served.allocator->allocate(64, 0));
  for (int i = 0; i < 4; ++i) kept.push_back(served.allocator->allocate(4 * kMiB, 0));
  served.allocator->mark_step(0);
  for (int step = 0; step < 3; ++step) {
    std::vector<void*> blocks;
    const std::uint64_t hits = served.allocator->stats().hits;
    for (Bytes i = 0; i < 16; ++i) blocks.push_back(served.allocator->allocate(kMiB - i, 0));
    for (void* const block : blocks) served.free(block);
    served.allocator->mark_step(0);
    CHECK(served.allocator->stats().hits == hits + 16);
  }
  CHECK(device.violations().empty());
}

TEST_CASE("A plan takes no pages of the pool before its first step", "[runtime][pages]") {
  test::SimulatedDevice device({.handles = true});
  Served served(device, side_by_side(8));
  for (int step = 0; step < 2; ++step) {
    std::vector<void*> blocks;
    for (Bytes i = 0; i < 8; ++i) blocks.push_back(served.allocator->allocate(kMiB - i, 0));
    for (void* const block : blocks) served.free(block);
    served.allocator->mark_step(0);
  }
  REQUIRE(served.allocator->stats().hits >= 8);
  // Pages that new weights can have.
  served.free(served.allocator->allocate(32 * kMiB, 7));
  served.allocator->load_plan(side_by_side(32));
  const std::uint64_t moved = served.allocator->stats().pages_moved;
  for (int i = 0; i < 40; ++i) served.free(served.allocator->allocate(64, 0));
  CHECK(served.allocator->stats().pages_moved == moved);
  served.allocator->mark_step(0);
  CHECK(served.allocator->stats().pages_moved > moved);
  CHECK(device.violations().empty());
}

TEST_CASE("Where no pages are mapped the whole arena goes back, and comes again with the steps",
          "[runtime][pages]") {
  test::SimulatedDevice device({.maps_pages = false});
  Served served(device, side_by_side(16));
  const auto step = [&] {
    std::vector<void*> blocks;
    for (Bytes i = 0; i < 16; ++i) blocks.push_back(served.allocator->allocate(kMiB - i, 0));
    for (void* const block : blocks) served.free(block);
    served.allocator->mark_step(0);
    CHECK(served.allocator->is_valid() == "");
  };
  for (int i = 0; i < 3; ++i) step();
  const Bytes reserved = served.allocator->stats().reserved;
  const Bytes arena = served.allocator->stats().arena;
  REQUIRE(arena != 0);
  // Not while a block lives in it.
  void* const kept = served.allocator->allocate(kMiB, 0);
  (void)served.allocator->trim();
  CHECK(served.allocator->stats().reserved >= arena);
  served.free(kept);
  served.allocator->mark_step(0);

  CHECK(served.allocator->trim() >= arena);
  CHECK(served.allocator->stats().reserved == 0);
  step();
  const std::uint64_t hits = served.allocator->stats().hits;
  step();
  CHECK(served.allocator->stats().hits == hits + 16);
  CHECK(served.allocator->stats().reserved <= reserved);
  CHECK(device.violations().empty());
}

TEST_CASE("Pages that come for one lane of a plan are waited for by the others",
          "[runtime][pages]") {
  constexpr Bytes kPage = Bytes{256} << 10;
  test::SimulatedDevice device({.page_bytes = kPage});
  // The halves of one page are two lanes'.
  Served served(device, plan_of({sequence_of({{0, kPage / 2, 1}}, 0),
                                 sequence_of({{kPage / 2, kPage / 2, 1}}, 1)}));
  Allocator& allocator = *served.allocator;
  void* const earlier = allocator.allocate(2 * kPage, 0);
  device.hand_out(0, earlier, 2 * kPage);
  served.free(earlier);
  // Nothing moves at a mark here: the pages come with the blocks.
  const auto ask = [&](LaneKey lane) {
    void* const block = allocator.allocate(kPage / 2, lane);
    device.hand_out(lane, block, kPage / 2);
    return block;
  };
  allocator.mark_step(0);
  void* const first = ask(0);
  void* const second = ask(1);
  CHECK(allocator.stats().hits == 2);
  CHECK(allocator.stats().pages_moved > 0);
  CHECK(device.violations().empty());
  served.free(first);
  served.free(second);
}

TEST_CASE("An unknown step takes bytes of the arena, and keeps no rest of a page from others",
          "[runtime][pages]") {
  constexpr Bytes kPage = Bytes{256} << 10;
  test::SimulatedDevice device({.total_bytes = 512 * kMiB, .page_bytes = kPage});
  Served served(device, side_by_side(16));
  Allocator& allocator = *served.allocator;
  for (int i = 0; i < 3; ++i) {
    std::vector<void*> blocks;
    for (Bytes k = 0; k < 16; ++k) blocks.push_back(allocator.allocate(kMiB - k, 0));
    for (void* const block : blocks) served.free(block);
    allocator.mark_step(0);
  }
  const Bytes before = allocator.stats().reserved;
  // The pool serves 24, until the lane rests, and the arena the rest: 15 MiB, or 30 of whole pages.
  std::vector<void*> others;
  for (int i = 0; i < 84; ++i) others.push_back(allocator.allocate(kPage + 512, 0));
  CHECK(allocator.stats().reserved <= before + 8 * kMiB);
  CHECK(allocator.is_valid() == "");
  for (void* const block : others) served.free(block);
}

TEST_CASE("What an arena lends to another lane is ordered before and after", "[runtime][pages]") {
  constexpr Bytes kPage = Bytes{256} << 10;
  test::SimulatedDevice device({.total_bytes = 20 * kMiB, .page_bytes = kPage});
  Served served(device, side_by_side(16));
  Allocator& allocator = *served.allocator;
  const auto planned = [&] {
    std::vector<void*> blocks;
    for (Bytes i = 0; i < 16; ++i) {
      blocks.push_back(allocator.allocate(kMiB - i, 0));
      device.hand_out(0, blocks.back(), kMiB - i);
    }
    for (void* const block : blocks) served.free(block);
    allocator.mark_step(0);
  };
  for (int i = 0; i < 3; ++i) planned();
  // There is no memory but the arena's.
  for (int i = 0; i < 3; ++i) {
    void* const other = allocator.allocate(12 * kMiB, 5);
    device.hand_out(5, other, 12 * kMiB);
    CHECK(allocator.is_valid() == "");
    served.free(other);
    planned();
  }
  CHECK(allocator.stats().stitched == 3);
  CHECK(allocator.stats().hits == 80);
  CHECK(device.violations().empty());
}
