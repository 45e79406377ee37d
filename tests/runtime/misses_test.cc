// What the statistics say of requests that the plan did not serve.

#include "csrc/device/host_device.h"
#include "csrc/runtime/allocator.h"
#include "csrc/runtime/miss_table.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/small_plan.h"

#include <vector>

using namespace berth;
using test::plan_of;
using test::sequence_of;
using Reason = Miss::Reason;

namespace {

// Steps of four requests, freed at once, under a plan that expects them.
struct Run {
  explicit Run(const Plan& plan = plan_for({100, 200, 300, 400})) {
    allocator.load_plan(plan);
    allocator.mark_step(0);
  }
  static Plan plan_for(const std::vector<Bytes>& sizes) {
    std::vector<test::SlotSpec> slots;
    Bytes offset = 0;
    for (const Bytes size : sizes) {
      slots.push_back({offset, size, 1});
      offset += align_up(size, 64);
    }
    return plan_of({sequence_of(slots)});
  }
  void ask(Bytes size, LaneKey lane = 0, trace::Tag tag = 0) {
    REQUIRE(allocator.free(allocator.allocate(size, lane, tag)) == Allocator::FreeOutcome::kDone);
  }
  void step(const std::vector<Bytes>& sizes) {
    for (const Bytes size : sizes) ask(size);
    allocator.mark_step(0);
  }
  [[nodiscard]] std::vector<Miss> misses() const { return allocator.stats().misses; }

  std::unique_ptr<Device> device = make_host_device(Bytes{1} << 30);
  test::CheckedAllocator allocator{*device, options()};
  static Allocator::Options options() {
    Allocator::Options options;
    options.config.mode = Mode::kOff;
    return options;
  }
};

}  // namespace

TEST_CASE("A request of another size is told with its place and what was expected",
          "[runtime][misses]") {
  Run run;
  run.step({100, 200, 300, 400});
  REQUIRE(run.misses().empty());
  for (int i = 0; i < 3; ++i) run.step({100, 200, 999, 400});
  REQUIRE(run.misses().size() == 1);
  const Miss miss = run.misses()[0];
  REQUIRE(miss.reason == Reason::kSize);
  REQUIRE(miss.position == 2);
  REQUIRE(miss.requests == 4);
  REQUIRE(miss.expected == 300);
  REQUIRE(miss.came == 999);
  REQUIRE(miss.count == 3);
}

TEST_CASE("A request whose bytes are in use is told with its place", "[runtime][misses]") {
  // The second request has the bytes of the first, and the arena no others.
  Run run(plan_of({sequence_of({{0, 100, 1}, {0, 100, 1}})}));
  void* const kept = run.allocator.allocate(100, 0);
  run.ask(100);
  REQUIRE(run.misses().size() == 1);
  REQUIRE(run.misses()[0].reason == Reason::kBusy);
  REQUIRE(run.misses()[0].position == 1);
  REQUIRE(run.misses()[0].expected == 100);
  REQUIRE(run.allocator.free(kept) == Allocator::FreeOutcome::kDone);
}

TEST_CASE("A request of a lane that the plan does not have is told with lane and tag",
          "[runtime][misses]") {
  Run run;
  for (int i = 0; i < 5; ++i) run.ask(4096, 77, 3);
  REQUIRE(run.misses().size() == 1);
  REQUIRE(run.misses()[0].reason == Reason::kLane);
  REQUIRE(run.misses()[0].lane == 77);
  REQUIRE(run.misses()[0].tag == 3);
  REQUIRE(run.misses()[0].count == 5);
}

TEST_CASE("A step that the plan does not know is told as such", "[runtime][misses]") {
  Run run;
  for (Bytes i = 0; i < 100; ++i) run.ask(5000);
  const std::vector<Miss> misses = run.misses();
  const auto lost = std::count_if(misses.begin(), misses.end(),
                                  [](const Miss& m) { return m.reason == Reason::kLost; });
  REQUIRE(lost > 0);
  for (const Miss& miss : misses) REQUIRE((miss.reason == Reason::kLost) == (miss.expected == 0));
}

TEST_CASE("Misses of an earlier plan are not told of the next one", "[runtime][misses]") {
  Run run;
  for (int i = 0; i < 3; ++i) run.step({100, 200, 999, 400});
  run.allocator.load_plan(Run::plan_for({100, 200, 999, 400}));
  run.allocator.mark_step(0);
  run.step({100, 200, 300, 400});
  REQUIRE(run.misses().size() == 1);
  REQUIRE(run.misses()[0].came == 300);
  REQUIRE(run.misses()[0].count == 1);
}

TEST_CASE("A plan that serves all and requests without a plan tell no misses",
          "[runtime][misses]") {
  Run run;
  for (int i = 0; i < 10; ++i) run.step({100, 200, 300, 400});
  REQUIRE(run.misses().empty());
  const auto device = make_host_device(Bytes{1} << 30);
  test::CheckedAllocator none(*device, Run::options());
  REQUIRE(none.free(none.allocate(64, 0)) == Allocator::FreeOutcome::kDone);
  REQUIRE(none.stats().misses.empty());
}

TEST_CASE("Of many misses the most frequent are told whatever else comes", "[misses]") {
  MissTable table;
  const int plan = 0;
  for (std::uint32_t round = 0; round < 1000; ++round) {
    for (std::uint32_t often = 0; often < 8; ++often)
      table.add({.position = often, .came = 64}, &plan);
    table.add({.position = 1000 + round, .came = round}, &plan);
  }
  const std::vector<Miss> most = table.most();
  REQUIRE(most.size() == MissTable::kMost);
  for (std::size_t i = 0; i < 8; ++i) {
    REQUIRE(most[i].position < 8);
    REQUIRE(most[i].count > 900);
    REQUIRE(most[i].count <= 1000);
  }
}
