// Learning where the device maps no pages: an arena is one allocation, the pool lies in segments.

#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/limited_run.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_step.h"

#include <vector>

using namespace berth;

namespace {

constexpr Bytes kMiB = Bytes{1} << 20;

// A program on such a device: blocks that stay, and steps.
struct Plain {
  explicit Plain(Mode mode = Mode::kLearn, Bytes total = Bytes{8} << 30)
      : device({.total_bytes = total, .page_bytes = 4096, .maps_pages = false}),
        allocator(device, options(mode)) {}
  static Allocator::Options options(Mode mode) {
    Allocator::Options options;
    options.config.mode = mode;
    options.alignment = 512;
    options.start_threads = false;
    options.pool.segment_bytes = 20 * kMiB;
    return options;
  }
  void* allocate(Bytes size) { return allocator.allocate(size, 0); }
  void free(void* pointer) { REQUIRE(allocator.free(pointer) == Allocator::FreeOutcome::kDone); }
  // Blocks that live together, then their frees; returns the share of hits.
  double step(const std::vector<Bytes>& sizes) {
    const Stats before = allocator.stats();
    std::vector<void*> blocks;
    for (const Bytes size : sizes) blocks.push_back(allocate(size));
    for (void* const block : blocks) free(block);
    allocator.mark_step(0);
    const Stats after = allocator.stats();
    return static_cast<double>(after.hits - before.hits) / static_cast<double>(sizes.size());
  }
  [[nodiscard]] Bytes peak() const { return allocator.stats().reserved_peak; }

  test::SimulatedDevice device;
  test::CheckedAllocator allocator;
};

// Steps with a block that crosses each mark.
struct Crossing : Plain {
  Crossing() { free(allocate(320 * kMiB)); }  // the plans may hold so much
  // Returns the step's hits.
  std::uint64_t cross(const std::vector<Bytes>& sizes) {
    const Stats before = allocator.stats();
    free(crossing);
    crossing = allocate(40 * kMiB);
    std::vector<void*> blocks;
    for (const Bytes size : sizes) blocks.push_back(allocate(size));
    for (void* const block : blocks) free(block);
    allocator.mark_step(0);
    return allocator.stats().hits - before.hits;
  }
  void* crossing = allocate(40 * kMiB);
};

}  // namespace

TEST_CASE("In segments a plan holds no more than the pool did before it", "[plain][learn]") {
  Plain run;
  void* const weights = run.allocate(50 * kMiB);
  const std::vector<Bytes> sizes = {30 * kMiB, 44 * kMiB, 12 * kMiB, 8 * kMiB};
  run.step(sizes);
  const Bytes before = run.peak();
  double share = 0;
  for (int i = 0; i < 10; ++i) share = run.step(sizes);
  REQUIRE(share == 1.0);
  REQUIRE(run.peak() == before);
  REQUIRE(run.device.committed() < before + 2 * kMiB);
  run.free(weights);
}

TEST_CASE("In segments a plan that would hold more than the pool does not serve",
          "[plain][learn]") {
  Plain run;
  // What stays lies in the segments of what does not: none of them can go.
  std::vector<void*> stay;
  std::vector<void*> first;
  for (int i = 0; i < 4; ++i) {
    first.push_back(run.allocate(8 * kMiB));
    stay.push_back(run.allocate(2 * kMiB));
    first.push_back(run.allocate(9 * kMiB));
  }
  for (void* const block : first) run.free(block);
  run.allocator.mark_step(0);
  const std::vector<Bytes> sizes(8, 7 * kMiB);
  double share = 1;
  for (int i = 0; i < 40; ++i) share = run.step(sizes);
  REQUIRE(share == 0.0);
  REQUIRE(run.peak() == 80 * kMiB);
  REQUIRE(run.allocator.stats().plans_declined > 0);
  // It is asked for again, and serves when there is room.
  for (void* const block : stay) run.free(block);
  for (int i = 0; i < 200; ++i) share = run.step(sizes);
  REQUIRE(share == 1.0);
  REQUIRE(run.peak() == 80 * kMiB);
}

TEST_CASE("In segments nothing goes for a plan that does not serve", "[plain][learn]") {
  Plain run;
  // A segment of 40 MiB lies idle, one of 60 MiB does not.
  run.free(run.allocate(40 * kMiB));
  void* const large = run.allocate(60 * kMiB);
  run.free(large);
  void* const stays = run.allocate(41 * kMiB);
  const std::vector<Bytes> sizes(4, 15 * kMiB);
  double share = 1;
  for (int i = 0; i < 40; ++i) share = run.step(sizes);
  REQUIRE(share == 0.0);
  REQUIRE(run.allocator.stats().plans_declined > 0);
  REQUIRE(run.device.calls(test::CallKind::kRelease) == 0);
  run.free(stays);
}

TEST_CASE("In segments the arena lends to steps that the plan does not know", "[plain][lend]") {
  const std::vector<Bytes> sizes = {30 * kMiB, 44 * kMiB, 12 * kMiB};
  Plain run;
  for (int i = 0; i < 10; ++i) run.step(sizes);
  const Bytes before = run.peak();
  // Beside a planned block: an arena that rests would lend without being asked.
  void* const planned = run.allocate(30 * kMiB);
  void* const other = run.allocate(40 * kMiB);
  REQUIRE(run.allocator.find(other)->planned);
  REQUIRE(run.peak() == before);
  run.free(other);
  run.free(planned);
}

TEST_CASE("In segments an arena that is too small for a new plan is emptied for it",
          "[plain][learn]") {
  Crossing run;
  std::uint64_t hits = 0;
  const std::vector<Bytes> small(5, 24 * kMiB), large(5, 40 * kMiB);
  for (int i = 0; i < 12; ++i) hits = run.cross(small);
  REQUIRE(hits == 6);
  for (int i = 0; i < 60; ++i) hits = run.cross(large);
  REQUIRE(hits == 6);
  REQUIRE(run.peak() == 360 * kMiB);
  run.free(run.crossing);
}

TEST_CASE("In segments an arena that was emptied goes before the pool grows", "[plain][learn]") {
  Crossing run;
  std::uint64_t hits = 0;
  const std::vector<Bytes> small(5, 24 * kMiB);
  // No gap of the arena is large enough for the first block.
  const std::vector<Bytes> large = {200 * kMiB, 2 * kMiB, 2 * kMiB, 2 * kMiB, 2 * kMiB};
  for (int i = 0; i < 12; ++i) hits = run.cross(small);
  REQUIRE(hits == 6);
  for (int i = 0; i < 60; ++i) run.cross(large);
  REQUIRE(run.peak() <= 420 * kMiB);
  run.free(run.crossing);
}

TEST_CASE("In segments an arena that cannot be emptied serves its former plan", "[plain][learn]") {
  Plain run;
  run.free(run.allocate(400 * kMiB));  // the plans may hold so much
  const std::vector<Bytes> small(6, 24 * kMiB), large(6, 40 * kMiB);
  for (int i = 0; i < 12; ++i) run.step(small);
  void* const stays = run.allocate(24 * kMiB);
  REQUIRE(run.allocator.find(stays)->planned);
  double share = 0;
  for (int i = 0; i < 60; ++i) {
    run.step(large);
    share = run.step(small);
  }
  REQUIRE(share > 0.5);
  REQUIRE(run.peak() == 400 * kMiB);
  run.free(stays);
}

TEST_CASE("In segments learning holds what the pool alone holds, on random programs",
          "[plain][property]") {
  const test::DeviceKind& segments = test::kDeviceKinds[2];
  double ratios = 0;
  constexpr int kPrograms = 16;
  for (std::uint64_t seed = 1; seed <= kPrograms; ++seed) {
    const test::RandomProgram program = test::repeating_program(seed, 60, segments.alignment);
    const Bytes learning = test::run_limited(program, segments, 0).reserved_peak;
    const Bytes alone = test::run_limited(program, segments, 0, Mode::kOff).reserved_peak;
    CAPTURE(seed, learning, alone);
    const double ratio = static_cast<double>(learning) / static_cast<double>(alone);
    CHECK(ratio <= 1.1);
    ratios += ratio;
  }
  REQUIRE(ratios / kPrograms <= 1.01);
}

TEST_CASE("In segments that are nearly all in use learning runs out no more often than the pool",
          "[plain][property]") {
  const test::DeviceKind& segments = test::kDeviceKinds[2];
  int learning = 0, alone = 0;
  constexpr int kPrograms = 100;
  for (std::uint64_t seed = 1; seed <= kPrograms; ++seed) {
    const test::RandomProgram program = test::repeating_program(seed, 60, segments.alignment);
    const Bytes limit = test::limit_of(program, segments, 0.1);
    learning += test::run_limited(program, segments, limit).failed_at ? 1 : 0;
    alone += test::run_limited(program, segments, limit, Mode::kOff).failed_at ? 1 : 0;
  }
  CHECK(learning <= alone);
  CHECK(alone < kPrograms);
}
