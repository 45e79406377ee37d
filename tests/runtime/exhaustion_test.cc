#include "csrc/runtime/exhaustion.h"

#include "csrc/device/host_device.h"
#include "csrc/runtime/allocator.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/simulated_device.h"

#include <berth/error.h>

#include <string>
#include <vector>

using namespace berth;
using Catch::Matchers::Contains;

namespace {

using Kind = Stretch::Piece::Kind;
constexpr Bytes kPage = 4096, kBase = 1 << 20;

void* at(Bytes offset) { return reinterpret_cast<void*>(kBase + offset); }

// Pieces one after the other from the start of a page.
Stretch stretch_of(const std::vector<std::pair<Kind, Bytes>>& pieces) {
  Stretch stretch{at(0), 0, {}};
  for (const auto& [kind, size] : pieces) {
    stretch.pieces.push_back({at(stretch.size), size, size, 0, kind});
    stretch.size += size;
  }
  return stretch;
}

}  // namespace

TEST_CASE("A hole counts as stuck where its page holds a block as well", "[runtime][exhaustion]") {
  Exhaustion report(kPage);
  report.add(stretch_of({{Kind::kLive, 1000},
                         {Kind::kHole, kPage - 1000},
                         {Kind::kHole, kPage},
                         {Kind::kWaiting, 100},
                         {Kind::kHole, 2 * kPage}}),
             false);
  REQUIRE(report.holes() == kPage - 1000 + 3 * kPage);
  REQUIRE(report.largest_hole() == 2 * kPage);
  REQUIRE(report.waiting() == 100);
  // The rest of the first page; of the last hole what lies before and behind its one whole page.
  REQUIRE(report.stuck() == kPage - 1000 + kPage);
}

TEST_CASE("What holds the pool is told by tag and size, most first", "[runtime][exhaustion]") {
  Exhaustion report(kPage);
  for (int i = 0; i < 3; ++i) report.add_block(1 << 20, 1 << 20, 7);
  report.add_block(2 << 20, 2 << 20, 0);
  for (std::uint32_t tag = 0; tag < 4; ++tag) report.add_block(512, 500, tag);
  REQUIRE_THAT(report.text(),
               Contains("most of the pool: 3 blocks of 1.0 MiB, tag 7 (3.0 MiB), 1 block of 2.0 "
                        "MiB (2.0 MiB), ") &&
                   Contains("2 blocks of other sizes (1.0 KiB)"));
}

TEST_CASE("What the plan still needs is told where it has not all", "[runtime][exhaustion]") {
  Exhaustion report(kPage);
  REQUIRE_THAT(report.text(), !Contains("the plan's arena"));
  report.plan_arena = 10 << 20;
  report.arena_held = 4 << 20;
  REQUIRE_THAT(report.text(), Contains("the plan's arena: 10.0 MiB, 4.0 MiB of it held: it needs "
                                       "6.0 MiB more"));
  report.arena_held = 10 << 20;
  REQUIRE_THAT(report.text(), !Contains("more"));
}

TEST_CASE("A request that is refused says who has the memory", "[runtime][exhaustion]") {
  const auto device = make_host_device(Bytes{1} << 30);
  Allocator::Options options;
  options.config.mode = Mode::kOff;
  options.config.memory_limit = Bytes{16} << 20;
  test::CheckedAllocator allocator(*device, options);
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(allocator.allocate(Bytes{1} << 20, 0, 5));
  try {
    (void)allocator.allocate(Bytes{8} << 20, 3);
    FAIL("it was served");
  } catch (const OutOfMemory& error) {
    REQUIRE_THAT(error.what(), Contains("under the limit of 16.0 MiB (BERTH_MEMORY_LIMIT, or a "
                                        "memory fraction): asked 8.0 MiB for lane 3") &&
                                   Contains("of 16.0 MiB") &&
                                   Contains("6.0 MiB left of the limit") &&
                                   !Contains("free on the device") &&
                                   Contains("10 blocks of 1.0 MiB, tag 5 (10.0 MiB)") &&
                                   Contains("ranges: pool "));
  }
  for (void* block : blocks) REQUIRE(allocator.free(block) == Allocator::FreeOutcome::kDone);
}

TEST_CASE("Where memory is out, single pages between blocks serve", "[runtime][exhaustion]") {
  const auto device = make_host_device(Bytes{1} << 30);
  Allocator::Options options;
  options.config.mode = Mode::kOff;
  options.config.memory_limit = Bytes{1} << 20;
  test::CheckedAllocator allocator(*device, options);
  // In each growth of 64 KiB a block stays.
  std::vector<void*> blocks, between;
  for (int i = 0; i < 15; ++i) {
    blocks.push_back(allocator.allocate(Bytes{16} << 10, 0));
    between.push_back(allocator.allocate(Bytes{48} << 10, 0));
  }
  for (void* block : between) REQUIRE(allocator.free(block) == Allocator::FreeOutcome::kDone);
  blocks.push_back(allocator.allocate(Bytes{750} << 10, 0));
  CHECK(allocator.stats().reserved <= Bytes{1} << 20);
  for (void* block : blocks) REQUIRE(allocator.free(block) == Allocator::FreeOutcome::kDone);
}

TEST_CASE("A driver that refuses is told as what it is, not as a lack of memory",
          "[runtime][exhaustion]") {
  test::SimulatedDevice device;
  Allocator::Options options;
  options.start_threads = false;
  options.config.mode = Mode::kOff;
  test::CheckedAllocator allocator(device, options);
  device.fail_call(1, {Status::Code::kFailed, "mapping", 5}, test::CallKind::kCommit, true);
  try {
    (void)allocator.allocate(Bytes{8} << 20, 3);
    FAIL("it was served");
  } catch (const OutOfMemory& error) {
    FAIL(error.what());
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kSystem);
    CHECK_THAT(error.what(), Contains("mapping") && Contains("asked 8.0 MiB for lane 3") &&
                                 !Contains("out of memory"));
  }
  device.fail_call(1, {Status::Code::kOutOfMemory, "mapping", 12}, test::CallKind::kCommit, true);
  CHECK_THROWS_AS(allocator.allocate(Bytes{8} << 20, 3), OutOfMemory);
  device.fail_none();
  void* const block = allocator.allocate(Bytes{8} << 20, 3);
  CHECK(allocator.free(block) == Allocator::FreeOutcome::kDone);
}
