// A device whose memory goes by handles of several pages: arena and pool never take a part of one.

#include "csrc/runtime/allocator.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/random_program.h"
#include "tests/support/simulated_device.h"

#include <berth/error.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

using namespace berth;

namespace {

constexpr Bytes kPage = Bytes{64} << 10, kMiB = Bytes{1} << 20;

struct Run {
  explicit Run(Bytes handle, Bytes limit = 0)
      : device({.total_bytes = 1024 * kMiB, .page_bytes = kPage, .handles = true}) {
    Allocator::Options options;
    options.start_threads = false;
    options.config.plan_time_limit_seconds = 0.05;
    options.config.handle = handle;
    options.config.memory_limit = limit;
    options.alignment = 512;
    options.pool.growth_bytes = kPage;
    allocator.emplace(device, options);
  }

  // Each block has its number in every page, as long as it lives.
  struct Block {
    std::byte* pointer = nullptr;
    Bytes size = 0;
    std::uint64_t number = 0;
    LaneKey lane = 0;
  };
  template <class Visit>
  static void for_each_word(const Block& block, Visit&& visit) {
    for (Bytes at = 0; at + sizeof block.number <= block.size; at += kPage / 2)
      visit(block.pointer + at);
  }
  Block allocate(Bytes size, LaneKey lane = 0) {
    Block block{nullptr, size, ++last, lane};
    try {
      block.pointer = static_cast<std::byte*>(allocator->allocate(size, lane));
    } catch (const OutOfMemory&) {
      return block;
    }
    (void)device.hand_out(lane, block.pointer, size);
    for_each_word(block, [&](std::byte* at) { std::memcpy(at, &block.number, 8); });
    return block;
  }
  void check(const Block& block) {
    for_each_word(block, [&](std::byte* at) {
      std::uint64_t number = 0;
      std::memcpy(&number, at, 8);
      REQUIRE(number == block.number);
    });
  }
  void free(Block& block) {
    if (block.pointer == nullptr) return;
    check(block);
    device.touch(block.lane, block.pointer, block.size);
    REQUIRE(allocator->free(block.pointer) == Allocator::FreeOutcome::kDone);
    block.pointer = nullptr;
  }

  test::SimulatedDevice device;
  std::optional<test::CheckedAllocator> allocator;
  std::uint64_t last = 0;
};

}  // namespace

TEST_CASE("No program loses a byte where memory goes by handles", "[runtime][handles][property]") {
  std::uint64_t stitched = 0, moved = 0, hits = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    const bool repeats = seed % 2 == 0;
    const test::RandomProgram program = repeats ? test::repeating_program(seed, 20, 512)
                                                : test::random_program(seed, 1000, 64 * kMiB, 512);
    const Bytes handle = seed % 4 < 2 ? 24 * kPage : kMaxBytes;
    Run run(handle, seed % 3 == 0 ? program.live_peak + program.live_peak / 10 : 0);
    std::vector<Run::Block> blocks(program.blocks);
    std::mt19937 random(static_cast<unsigned>(seed));
    auto mark = program.marks.begin();
    for (std::size_t i = 0; i < program.operations.size(); ++i) {
      if (mark != program.marks.end() && *mark == i) {
        ++mark;
        run.allocator->mark_step(0);
      } else if (program.marks.empty() && i % 300 == 299) {
        run.allocator->mark_step(0);
      }
      const test::ProgramOperation& operation = program.operations[i];
      if (operation.size == 0)
        run.free(blocks[operation.block]);
      else
        blocks[operation.block] = run.allocate(operation.size, operation.lane);
      if (random() % 16 == 0) run.device.complete_some(random);
      if (random() % 128 == 0) REQUIRE(run.allocator->is_valid() == "");
      if (random() % 500 == 0) (void)run.allocator->trim();
      if (random() % 700 == 0) {
        (void)run.allocator->release(true);
        REQUIRE(run.device.committed() < 2 * program.live_peak + 64 * kMiB);
        (void)run.allocator->resume();
        for (const Run::Block& block : blocks)
          if (block.pointer != nullptr) run.check(block);
      }
      REQUIRE(run.device.violations() == std::vector<std::string>{});
    }
    const Stats stats = run.allocator->stats();
    stitched += stats.stitched;
    moved += stats.pages_moved;
    hits += stats.hits;
    for (Run::Block& block : blocks) run.free(block);
    (void)run.allocator->trim();
    REQUIRE(run.allocator->stats().reserved == 0);
    REQUIRE(run.device.committed() == 0);
    REQUIRE(run.device.violations() == std::vector<std::string>{});
  }
  CHECK(stitched > 100);
  CHECK(moved > 100);
  CHECK(hits > 1000);
}

TEST_CASE("A handle is as large as the growth, and as is allowed", "[runtime][handles]") {
  const auto handle_of = [](Bytes handle) {
    Run run(handle);
    Run::Block block = run.allocate(4 * kMiB);
    const Bytes size = run.device.handle_at(block.pointer).size();
    run.free(block);
    return size;
  };
  CHECK(handle_of(0) == kPage);
  CHECK(handle_of(8 * kPage + 1) == 8 * kPage);
  CHECK(handle_of(kMaxBytes) == 4 * kMiB);
}

TEST_CASE("Under a limit what comes back after a trim may go in parts", "[runtime][handles]") {
  Run run(kPage, 28 * kMiB);
  const auto begin = [&] {
    Run::Block large = run.allocate(24 * kMiB);
    run.free(large);
  };
  const auto step = [&] {
    begin();
    Run::Block blocks[3];
    for (Run::Block& block : blocks) block = run.allocate(8 * kMiB);
    for (Run::Block& block : blocks) run.free(block);
    run.allocator->mark_step(0);
  };
  for (int i = 0; i < 8; ++i) step();
  REQUIRE(run.allocator->stats().plans_learned == 1);
  REQUIRE(run.allocator->trim() != 0);
  step();
  // What lies at both sides of a planned block serves one that no plan has.
  begin();
  std::vector<Run::Block> planned;
  for (int i = 0; i < 3; ++i) planned.push_back(run.allocate(8 * kMiB));
  std::sort(planned.begin(), planned.end(), [](const Run::Block& one, const Run::Block& other) {
    return one.pointer < other.pointer;
  });
  run.free(planned.front());
  run.free(planned.back());
  Run::Block other = run.allocate(18 * kMiB);
  CHECK(other.pointer != nullptr);
  run.free(other);
  run.free(planned[1]);
  CHECK(run.device.violations().empty());
}

TEST_CASE("What comes back after a trim has large handles, until the next plan",
          "[runtime][handles]") {
  Run run(kPage);
  const auto step = [&](Bytes size) {
    std::vector<Run::Block> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(run.allocate(size));
    const Bytes handle = run.device.handle_at(blocks.front().pointer).size();
    for (Run::Block& block : blocks) run.free(block);
    run.allocator->mark_step(0);
    return handle;
  };
  for (int i = 0; i < 8; ++i) (void)step(8 * kMiB);
  REQUIRE(run.allocator->stats().plans_learned == 1);
  CHECK(step(8 * kMiB) == kPage);
  for (int i = 0; i < 3; ++i) {
    CHECK(run.allocator->trim() != 0);
    CHECK(run.device.committed() == 0);
    CHECK(step(8 * kMiB) == 8 * kMiB);
    CHECK(step(8 * kMiB) == 8 * kMiB);
  }
  CHECK(run.allocator->trim() != 0);
  for (int i = 0; i < 16; ++i) (void)step(12 * kMiB);
  REQUIRE(run.allocator->stats().plans_learned > 1);
  CHECK(step(12 * kMiB) == kPage);
  CHECK(run.device.violations().empty());
}
