// Plans that lie: refused at load, and stopped at hand-out where a test lets them past the
// verifier.

#include "csrc/device/host_device.h"
#include "csrc/plan/verify.h"
#include "csrc/runtime/allocator.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/random_plan.h"
#include "tests/support/unverified_plan.h"

#include <map>
#include <random>

using namespace berth;

namespace {

Plan overlapping_plan() {
  Plan plan;
  plan.lane_keys = {0};
  Sequence sequence;
  sequence.period = 2;
  sequence.marks = {0};
  sequence.slots = {{.offset = 0, .requested = 256, .size = 256, .birth = 0, .length = 2},
                    {.offset = 128, .requested = 256, .size = 256, .birth = 1, .length = 1}};
  plan.sequences = {sequence};
  plan.arena_bytes = 384;
  return plan;
}

}  // namespace

TEST_CASE("A plan whose blocks overlap is refused at load", "[hostile]") {
  const auto device = make_host_device(Bytes{1} << 30);
  test::CheckedAllocator allocator(*device, {});
  REQUIRE_THROWS_WITH(
      allocator.load_plan(overlapping_plan()),
      Catch::Matchers::Contains("refused") && Catch::Matchers::Contains("share bytes"));
  REQUIRE_FALSE(allocator.plan().has_value());
}

TEST_CASE("Full checking stops an overlap at hand-out although the verifier was bypassed",
          "[hostile]") {
  const auto device = make_host_device(Bytes{1} << 30);
  Allocator::Options options;
  options.config.check = CheckLevel::kFull;
  test::CheckedAllocator allocator(*device, options);
  test::UnverifiedPlan::serve(allocator, overlapping_plan());
  allocator.mark_step(0);
  void* first = allocator.allocate(256, 0);
  REQUIRE_THROWS_WITH(allocator.allocate(256, 0),
                      Catch::Matchers::Contains("would share bytes with live block"));
  REQUIRE(allocator.is_valid() == "");
  REQUIRE(allocator.free(first) == Allocator::FreeOutcome::kDone);
}

TEST_CASE("Plans for other programs never make live blocks share a byte", "[hostile][property]") {
  std::uint64_t hits = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto device = make_host_device(Bytes{1} << 30);
    Allocator::Options options;
    options.config.check = CheckLevel::kFull;  // throws on the first shared byte
    options.start_threads = false;
    options.config.plan_time_limit_seconds = 0.01;  // it learns again now and then, in place
    test::CheckedAllocator allocator(*device, options);
    const Plan mine = test::random_plan(40, 6, random);
    const Plan other = test::random_plan(50, 6, random);
    allocator.load_plan(seed % 2 == 0 ? mine : other);
    std::multimap<std::uint64_t, void*> held;
    for (std::uint64_t now = 0; now < 2000; ++now) {
      while (!held.empty() && held.begin()->first <= now) {
        REQUIRE(allocator.free(held.begin()->second) == Allocator::FreeOutcome::kDone);
        held.erase(held.begin());
      }
      const Slot& slot = mine.sequences[0].slots[now % 40];
      held.emplace(now + slot.length + (random() % 30 == 0 ? random() % 60 : 0),
                   allocator.allocate(slot.requested, 0));
      if (now % 40 == 39) allocator.mark_step(0);
    }
    REQUIRE(allocator.is_valid() == "");
    hits += allocator.stats().hits;
  }
  REQUIRE(hits > 10000);
}
