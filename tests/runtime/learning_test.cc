// Learning in place, over the ways in which steps come and go.

#include "csrc/device/host_device.h"
#include "csrc/runtime/allocator.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_step.h"
#include "tests/support/temporary_folder.h"

#include <map>
#include <random>

using namespace berth;

namespace {

struct Run {
  explicit Run(Config config = {}) : Run(make_host_device(Bytes{1} << 30), config) {}
  explicit Run(std::unique_ptr<Device> on, Config config = {})
      : device(std::move(on)), allocator(*device, options(config)) {}
  static Allocator::Options options(const Config& config) {
    Allocator::Options options;
    options.config = config;
    options.start_threads = false;
    return options;
  }
  void* allocate(Bytes size) { return allocator.allocate(size, 0); }
  void free(void* pointer) { REQUIRE(allocator.free(pointer) == Allocator::FreeOutcome::kDone); }
  // Returns the share of hits.
  double step(const std::vector<test::Operation>& operations, bool mark = true) {
    const Stats before = allocator.stats();
    test::run_step(operations, *this);
    if (mark) allocator.mark_step(0);
    const Stats after = allocator.stats();
    return static_cast<double>(after.hits - before.hits) /
           static_cast<double>(after.requests - before.requests);
  }
  std::unique_ptr<Device> device;
  test::CheckedAllocator allocator;
};

}  // namespace

TEST_CASE("Steps without marks are found from the sequence and served", "[learn]") {
  Run run;
  void* weights = run.allocate(100000);
  run.step(test::training_step(7, 512), false);  // a first step that is unlike the others
  const auto step = test::training_step(60);
  double share = 0;
  for (int i = 0; i < 60; ++i) share = run.step(step, false);
  REQUIRE(run.allocator.stats().plans_learned >= 1);
  REQUIRE(share == 1.0);
  run.free(weights);
}

TEST_CASE("When the steps change for good they are learned again", "[learn]") {
  Run run;
  const auto first = test::training_step(20), second = test::training_step(31, 8192);
  double share = 0;
  for (int i = 0; i < 6; ++i) share = run.step(first);
  REQUIRE(share == 1.0);
  for (int i = 0; i < 20; ++i) share = run.step(second);
  REQUIRE(share == 1.0);
  REQUIRE(run.allocator.stats().plans_learned == 2);
}

TEST_CASE("A few steps of another kind do not cost the plan", "[learn]") {
  Run run;
  const auto train = test::training_step(20), evaluate = test::training_step(9, 1000);
  for (int i = 0; i < 6; ++i) run.step(train);
  run.step(evaluate);
  run.step(evaluate);
  REQUIRE(run.step(train) == 1.0);
  REQUIRE(run.allocator.stats().plans_learned == 1);
}

TEST_CASE("Steps that never repeat are served by the pool without end", "[learn]") {
  Run run;
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i)
    run.step(test::training_step(5 + random() % 50, 64 * (1 + random() % 100)));
  REQUIRE(run.allocator.stats().hits == 0);
  REQUIRE(run.allocator.is_valid() == "");
}

TEST_CASE("A block kept over the switch stays whole", "[learn]") {
  Run run;
  const auto step = test::training_step(20);
  run.step(step);
  run.step(step);
  auto* kept = static_cast<unsigned char*>(run.allocate(50000));
  std::fill(kept, kept + 50000, 0xAB);
  for (int i = 0; i < 6; ++i) {
    struct Writer {
      Run& run;
      std::map<void*, Bytes> sizes;
      void* allocate(Bytes size) {
        void* pointer = run.allocate(size);
        std::fill_n(static_cast<unsigned char*>(pointer), size, 0xCD);
        return pointer;
      }
      void free(void* pointer) { run.free(pointer); }
    } writer{run, {}};
    test::run_step(step, writer);
    run.allocator.mark_step(0);
  }
  REQUIRE(run.allocator.stats().hits > 0);
  for (int i = 0; i < 50000; ++i) REQUIRE(kept[i] == 0xAB);
  run.free(kept);
}

TEST_CASE(
    "What the step before the switch leaves in the pool gives its pages back when it is freed",
    "[learn]") {
  const bool waits = GENERATE(false, true);
  Run run(waits ? std::make_unique<test::SimulatedDevice>() : make_host_device(Bytes{1} << 30));
  constexpr Bytes kGradient = Bytes{1} << 20;
  void* weights = run.allocate(kGradient);
  std::vector<void*> gradients;
  const auto step = test::training_step(20);
  bool switched = false;
  for (int i = 0; i < 6; ++i) {
    const bool first = !switched && run.allocator.stats().arena != 0;
    // As a program does that clears its gradients at the start of a step.
    for (void* gradient : gradients) run.free(gradient);
    gradients.clear();
    if (first) {
      switched = true;
      REQUIRE(run.allocator.stats().hits == 0);
      REQUIRE(run.allocator.stats().pool_reserved < 5 * kGradient);
    }
    test::run_step(step, run);
    for (int k = 0; k < 12; ++k) gradients.push_back(run.allocate(kGradient));
    run.allocator.mark_step(0);
  }
  REQUIRE(switched);
  REQUIRE(run.allocator.stats().hits > 0);
  for (void* gradient : gradients) run.free(gradient);
  run.free(weights);
}

TEST_CASE(
    "A learned plan is written where a plan is named and serves the next run from its first mark",
    "[learn]") {
  const test::TemporaryFolder folder;
  Config config;
  config.plan = folder / "kept.plan";
  const auto step = test::training_step(20);
  {
    Run run(config);
    for (int i = 0; i < 4; ++i) run.step(step);
  }
  Run again(config);
  again.step(step);
  REQUIRE(again.step(step) == 1.0);
  REQUIRE(again.allocator.stats().plans_learned == 0);
}

TEST_CASE("Learning with threads ends in the same plan", "[learn][threads]") {
  const auto device = make_host_device(Bytes{1} << 30);
  test::CheckedAllocator allocator(*device, {});
  struct Memory {
    Allocator& allocator;
    void* allocate(Bytes size) { return allocator.allocate(size, 0); }
    void free(void* pointer) { allocator.free(pointer); }
  } memory{allocator};
  const auto step = test::training_step(30);
  int steps = 0;
  while (allocator.stats().plans_learned == 0 && steps < 20000) {
    test::run_step(step, memory);
    allocator.mark_step(0);
    ++steps;
  }
  REQUIRE(allocator.stats().plans_learned >= 1);
  const Stats before = allocator.stats();
  test::run_step(step, memory);
  REQUIRE(allocator.stats().hits - before.hits == 90);
}
