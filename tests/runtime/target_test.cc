#include "csrc/runtime/allocator.h"
#include "tests/catch.h"
#include "tests/support/simulated_device.h"

#include <algorithm>
#include <random>
#include <vector>

using namespace berth;

namespace {

constexpr Bytes kPage = Bytes{2} << 20;

struct Held {
  double of_live = 0;  // the most that was held, of the most that was live
  std::uint64_t calls_of_last_steps = 0;
};

std::uint64_t memory_calls(const test::SimulatedDevice& device) {
  using test::CallKind;
  return device.calls(CallKind::kCommit) + device.calls(CallKind::kDecommit) +
         device.calls(CallKind::kAlias);
}

// Steps of random lengths, each a stack of blocks that is freed from the top, beside blocks that
// stay: one more every few steps.
Held train(test::SimulatedDevice& device, int steps, bool vary, Bytes limit = 0) {
  Allocator::Options options;
  options.alignment = 512;
  options.config.mode = Mode::kLearn;
  options.config.memory_limit = limit;
  options.config.plan_time_limit_seconds = 60;
  options.start_threads = false;
  Allocator allocator(device, options);
  std::mt19937 random(7);
  std::vector<void*> kept, live;
  Held held;
  std::uint64_t calls = 0;
  for (int step = 0; step < steps; ++step) {
    if (step == steps - 20) calls = memory_calls(device);
    const Bytes length = vary ? 200 + step / 16 * 8 : 256;
    if (vary && step % 4 == 0) kept.push_back(allocator.allocate(Bytes{3} << 20, 0));
    for (int layer = 0; layer < 12; ++layer) {
      void* const scratch = allocator.allocate(length * 37 * 4096, 0);
      live.push_back(allocator.allocate(length * 64 * 4096, 0));
      live.push_back(allocator.allocate(length * (layer % 3 == 0 ? 101 : 23) * 4096, 0));
      allocator.free(scratch);
    }
    while (!live.empty()) {
      void* const gradient = allocator.allocate(length * 41 * 4096, 0);
      allocator.free(live.back());
      live.pop_back();
      allocator.free(gradient);
    }
    allocator.mark_step(0);
  }
  CHECK(allocator.is_valid() == "");
  const Stats stats = allocator.stats();
  held.of_live = static_cast<double>(stats.reserved_peak) / static_cast<double>(stats.live_peak);
  held.calls_of_last_steps = memory_calls(device) - calls;
  for (void* const pointer : kept) allocator.free(pointer);
  return held;
}

}  // namespace

TEST_CASE("What is held is what lives, without a limit", "[learn][target]") {
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  const Held held = train(device, 200, true);
  CAPTURE(held.of_live, held.calls_of_last_steps);
  CHECK(held.of_live <= 1.02);
}

// Experts whose shares of the work change at each step: as many requests, of any size.
TEST_CASE("Steps of any sizes hold what lives, too", "[learn][target]") {
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  Allocator::Options options;
  options.alignment = 512;
  options.config.mode = Mode::kLearn;
  options.config.plan_time_limit_seconds = 60;
  options.start_threads = false;
  Allocator allocator(device, options);
  std::mt19937 random(5);
  std::vector<void*> kept, live;
  for (int i = 0; i < 60; ++i) kept.push_back(allocator.allocate(Bytes{11} << 20, 0));
  for (int step = 0; step < 60; ++step) {
    for (int layer = 0; layer < 10; ++layer) {
      for (int expert = 0; expert < 8; ++expert) {
        const Bytes rows = 200 + random() % 120;
        void* const scratch = allocator.allocate(rows * 4096, 0);
        for (const Bytes columns : {4096, 11264, 11264, 4096})
          live.push_back(allocator.allocate(rows * columns, 0));
        allocator.free(scratch);
      }
    }
    while (!live.empty()) {
      allocator.free(live.back());
      live.pop_back();
    }
    allocator.mark_step(0);
  }
  CHECK(allocator.is_valid() == "");
  const Stats stats = allocator.stats();
  const double of_live =
      static_cast<double>(stats.reserved_peak) / static_cast<double>(stats.live_peak);
  CAPTURE(of_live, stats.hits, stats.hits_bucket, stats.lent);
  CHECK(stats.hits_bucket > 1000);
  CHECK(of_live <= 1.05);
  for (void* const pointer : kept) allocator.free(pointer);
}

// A buffer of small blocks that grows from step to step, beside steps that a plan serves.
TEST_CASE("Small blocks that stay share pages of the arena", "[learn][target]") {
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  Allocator::Options options;
  options.alignment = 512;
  options.config.mode = Mode::kLearn;
  options.config.plan_time_limit_seconds = 60;
  options.start_threads = false;
  Allocator allocator(device, options);
  std::mt19937 random(3);
  std::vector<void*> kept, live;
  for (int step = 0; step < 80; ++step) {
    const auto more = step < 8 ? 0 : 20 + random() % 30;
    for (unsigned long i = 0; i < more; ++i) kept.push_back(allocator.allocate(451584, 0));
    for (int i = 0; i < 24; ++i) {
      void* const scratch = allocator.allocate(Bytes{5} << 20, 0);
      live.push_back(allocator.allocate(Bytes{3} << 20, 0));
      allocator.free(scratch);
    }
    while (!live.empty()) {
      allocator.free(live.back());
      live.pop_back();
    }
    allocator.mark_step(0);
  }
  CHECK(allocator.is_valid() == "");
  const Stats stats = allocator.stats();
  const double of_live =
      static_cast<double>(stats.reserved_peak) / static_cast<double>(stats.live_peak);
  CAPTURE(of_live, stats.hits, stats.lent);
  CHECK(stats.hits > 200);
  CHECK(of_live <= 1.01);
  for (void* const pointer : kept) allocator.free(pointer);
}

TEST_CASE("Steps that repeat make no call of the device", "[learn][target]") {
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  const Held held = train(device, 60, false);
  CAPTURE(held.of_live);
  CHECK(held.of_live <= 1.03);
  CHECK(held.calls_of_last_steps == 0);
}

// Blocks of a page and a bit leave nearly half of what they touch: more must be held than should.
TEST_CASE("What should be held is no limit", "[target]") {
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  Allocator::Options options;
  options.start_threads = false;
  Allocator allocator(device, options);
  std::vector<void*> blocks;
  for (int i = 0; i < 2000; ++i) blocks.push_back(allocator.allocate(kPage * 3 / 4, 0));
  for (std::size_t i = 0; i < blocks.size(); i += 2)
    allocator.free(std::exchange(blocks[i], nullptr));
  // No hole is large enough, and no page is free.
  for (int i = 0; i < 200; ++i) blocks.push_back(allocator.allocate(kPage * 7 / 2, 0));
  CHECK(std::count(blocks.begin(), blocks.end(), nullptr) == 1000);
  CHECK(allocator.is_valid() == "");
  for (void* const block : blocks) allocator.free(block);
}
