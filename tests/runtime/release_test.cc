// Allocator::release() and resume(): memory that goes to others for a while.

#include "csrc/device/host_device.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_step.h"

#include <atomic>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

using namespace berth;

namespace {

constexpr Bytes kPage = Bytes{64} << 10;

struct Block {
  unsigned char* pointer = nullptr;
  Bytes size = 0;
  unsigned char value = 0;
};

struct Fixture {
  explicit Fixture(bool maps = true)
      : device({.total_bytes = Bytes{1} << 30, .page_bytes = kPage, .maps_pages = maps}),
        allocator(device, options()) {}
  Allocator::Options options() {
    Allocator::Options options;
    options.captures = &captures;
    options.start_threads = false;
    return options;
  }
  Block allocate(Bytes size) {
    const auto value = static_cast<unsigned char>(random());
    auto* const pointer = static_cast<unsigned char*>(allocator.allocate(size, 0));
    std::memset(pointer, value, size);
    return {pointer, size, value};
  }
  void free(const Block& block) {
    REQUIRE(allocator.free(block.pointer) == Allocator::FreeOutcome::kDone);
  }
  static void check(const Block& block) {
    REQUIRE(block.pointer[0] == block.value);
    REQUIRE(std::memcmp(block.pointer, block.pointer + 1, block.size - 1) == 0);
  }
  // A step of six requests that repeats.
  void step() {
    requests_of_a_step();
    allocator.mark_step(0);
  }
  void requests_of_a_step() {
    std::vector<Block> blocks;
    for (const Bytes size : {3 * kPage, kPage / 2, 5 * kPage, kPage, 7 * kPage, kPage / 8}) {
      blocks.push_back(allocate(size));
      if (blocks.size() == 3) {
        check(blocks[1]);
        free(blocks[1]);
        blocks.erase(blocks.begin() + 1);
      }
    }
    for (const Block& block : blocks) {
      check(block);
      free(block);
    }
  }
  std::uint64_t hits_of_a_step() {
    const std::uint64_t before = allocator.stats().hits;
    step();
    return allocator.stats().hits - before;
  }

  std::atomic<int> captures{0};
  test::SimulatedDevice device;
  test::CheckedAllocator allocator;
  std::mt19937 random{5};
};

}  // namespace

TEST_CASE("Without contents idle memory goes and comes back to its addresses", "[release]") {
  Fixture fixture;
  const Block kept = fixture.allocate(kPage);
  for (int i = 0; i < 20; ++i) fixture.step();
  REQUIRE(fixture.hits_of_a_step() == 6);
  const Bytes before = fixture.allocator.stats().reserved;
  const Bytes given = fixture.allocator.release(false);
  CHECK(given > 0);
  CHECK(fixture.allocator.stats().reserved == before - given);
  CHECK_FALSE(fixture.allocator.parked());
  Fixture::check(kept);
  CHECK(fixture.allocator.resume() > 0);
  CHECK(fixture.hits_of_a_step() == 6);
  (void)fixture.allocator.release(false);
  CHECK(fixture.hits_of_a_step() == 6);  // without resume() its pages come with the requests
  CHECK(fixture.allocator.is_valid() == "");
  fixture.free(kept);
}

TEST_CASE("With contents everything goes, and comes back as it was", "[release]") {
  Fixture fixture;
  std::vector<Block> kept;
  for (int i = 0; i < 10; ++i) kept.push_back(fixture.allocate(kPage * 3 / 2 + 100));
  for (int i = 0; i < 20; ++i) fixture.step();
  REQUIRE(fixture.hits_of_a_step() == 6);
  fixture.free(kept.back());
  kept.pop_back();
  for (int round = 0; round < 3; ++round) {
    const Stats before = fixture.allocator.stats();
    CHECK(fixture.allocator.release(true) == before.reserved);
    CHECK(fixture.allocator.parked());
    CHECK(fixture.allocator.release(true) == 0);
    CHECK(fixture.allocator.trim() == 0);
    const Stats away = fixture.allocator.stats();
    CHECK(away.reserved == 0);
    CHECK(away.live == before.live);
    CHECK(fixture.allocator.is_valid() == "");
    const std::uint64_t calls = fixture.device.calls(test::CallKind::kCommit);
    fixture.allocator.mark_step(0);  // as a program may
    CHECK(fixture.device.calls(test::CallKind::kCommit) == calls);
    fixture.free(kept.back());
    kept.pop_back();
    CHECK(fixture.allocator.resume() > 0);
    CHECK_FALSE(fixture.allocator.parked());
    for (const Block& block : kept) Fixture::check(block);
    CHECK(fixture.allocator.is_valid() == "");
    CHECK(fixture.hits_of_a_step() == 6);
  }
  for (const Block& block : kept) fixture.free(block);
}

// One of them is the step at whose end a plan would be taken.
TEST_CASE("A step that ends while the contents are away takes no memory", "[release]") {
  for (int steps = 0; steps < 8; ++steps) {
    CAPTURE(steps);
    Fixture fixture;
    const Block kept = fixture.allocate(kPage);
    for (int i = 0; i < steps; ++i) fixture.step();
    fixture.requests_of_a_step();
    (void)fixture.allocator.release(true);
    REQUIRE(fixture.allocator.parked());
    const std::uint64_t calls = fixture.device.driver_calls();
    fixture.allocator.mark_step(0);
    CHECK(fixture.device.driver_calls() == calls);
    CHECK(fixture.allocator.parked());
    CHECK(fixture.allocator.stats().reserved == 0);
    CHECK(fixture.allocator.is_valid() == "");
    (void)fixture.allocator.resume();
    Fixture::check(kept);
    for (int i = 0; i < 20; ++i) fixture.step();
    CHECK(fixture.hits_of_a_step() == 6);
    fixture.free(kept);
  }
}

TEST_CASE("A request brings the contents back first", "[release]") {
  Fixture fixture;
  const Block kept = fixture.allocate(3 * kPage);
  for (int i = 0; i < 20; ++i) fixture.step();
  (void)fixture.allocator.release(true);
  CHECK(fixture.hits_of_a_step() == 6);
  CHECK_FALSE(fixture.allocator.parked());
  Fixture::check(kept);
  // Where the device has no room for them, the request is out of memory and they stay.
  (void)fixture.allocator.release(true);
  fixture.device.fail_call(1, {Status::Code::kOutOfMemory, "test"}, test::CallKind::kCommit, true);
  CHECK_THROWS_AS(fixture.allocate(kPage), OutOfMemory);
  CHECK_THROWS_AS(fixture.allocator.resume(), OutOfMemory);
  CHECK(fixture.allocator.parked());
  CHECK(fixture.allocator.is_valid() == "");
  fixture.device.fail_none();
  CHECK(fixture.allocator.resume() > 0);
  Fixture::check(kept);
  fixture.free(kept);
}

TEST_CASE("A plan that is loaded brings the contents back first", "[release]") {
  Fixture fixture;
  const Block kept = fixture.allocate(3 * kPage);
  for (int i = 0; i < 20; ++i) fixture.step();
  const std::optional<Plan> plan = fixture.allocator.plan();
  REQUIRE(plan);
  (void)fixture.allocator.release(true);
  fixture.allocator.load_plan(*plan);
  CHECK_FALSE(fixture.allocator.parked());
  Fixture::check(kept);
  (void)fixture.hits_of_a_step();
  CHECK(fixture.hits_of_a_step() == 6);
  fixture.free(kept);
}

TEST_CASE("While a graph is captured nothing goes and nothing comes", "[release]") {
  Fixture fixture;
  const Block kept = fixture.allocate(3 * kPage);
  fixture.captures = 1;
  CHECK_THROWS_AS(fixture.allocator.release(true), Error);
  CHECK_THROWS_AS(fixture.allocator.release(false), Error);
  Fixture::check(kept);
  fixture.captures = 0;
  (void)fixture.allocator.release(true);
  fixture.captures = 1;
  CHECK_THROWS_AS(fixture.allocator.resume(), Error);
  CHECK_THROWS_AS(fixture.allocator.allocate(kPage, 0), Error);
  CHECK(fixture.allocator.parked());
  fixture.captures = 0;
  CHECK(fixture.allocator.resume() > 0);
  Fixture::check(kept);
  fixture.free(kept);
}

TEST_CASE("Contents that nowhere fit stay where they are", "[release]") {
  Fixture fixture;
  const Block kept = fixture.allocate(3 * kPage);
  fixture.device.fail_call(1, {Status::Code::kOutOfMemory, "test"}, test::CallKind::kReservePinned);
  CHECK_THROWS_AS(fixture.allocator.release(true), OutOfMemory);
  CHECK_FALSE(fixture.allocator.parked());
  Fixture::check(kept);
  CHECK(fixture.allocator.is_valid() == "");
  fixture.free(kept);
}

TEST_CASE("A device that maps no pages keeps what lives", "[release]") {
  Fixture fixture(false);
  const Block kept = fixture.allocate(3 * kPage);
  CHECK_THROWS_AS(fixture.allocator.release(true), Error);
  CHECK_FALSE(fixture.allocator.parked());
  fixture.free(fixture.allocate(40 * kPage));
  CHECK(fixture.allocator.release(false) > 0);
  Fixture::check(kept);
  fixture.free(kept);
}

TEST_CASE("A random program that is sent away now and then finds its bytes", "[release]") {
  Fixture fixture;
  std::vector<Block> blocks;
  for (int i = 0; i < 4000; ++i) {
    const auto draw = fixture.random() % 100;
    if (draw < 2) {
      (void)fixture.allocator.release(draw == 0);
      REQUIRE(fixture.allocator.is_valid() == "");
      if (fixture.random() % 2 == 0) (void)fixture.allocator.resume();
    } else if (draw < 5) {
      fixture.allocator.mark_step(0);
    } else if (blocks.size() < 60 && draw < 55) {
      const Bytes large = fixture.random() % 4 == 0 ? 6 * kPage : kPage / 4;
      blocks.push_back(fixture.allocate(1 + fixture.random() % large));
    } else if (!blocks.empty()) {
      const std::size_t victim = fixture.random() % blocks.size();
      if (!fixture.allocator.parked()) Fixture::check(blocks[victim]);
      fixture.free(blocks[victim]);
      blocks[victim] = blocks.back();
      blocks.pop_back();
    }
  }
  (void)fixture.allocator.resume();
  for (const Block& block : blocks) {
    Fixture::check(block);
    fixture.free(block);
  }
  REQUIRE(fixture.allocator.is_valid() == "");
}
