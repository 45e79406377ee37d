// Learning in place, over the ways in which steps come and go.

#include "csrc/core/file.h"
#include "csrc/device/host_device.h"
#include "csrc/plan/file.h"
#include "csrc/runtime/allocator.h"
#include "csrc/runtime/foretold.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_step.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/warnings.h"

#include <berth/error.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

using namespace berth;
using test::Warnings;

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

std::string content(const std::string& path) {
  const auto bytes = read_file(path, 1 << 20);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

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

TEST_CASE("Steps that will not come again leave neither plan nor memory behind", "[learn]") {
  const auto written = test::training_step(40, 65536), scheduled = test::training_step(12, 65536);
  const bool moves = GENERATE(false, true);  // whether pages move between arena and pool
  const auto share_of_fourth = [&](bool told, Stats& left) {
    Run run(moves ? std::make_unique<test::SimulatedDevice>() : make_host_device(Bytes{1} << 30));
    auto* const kept = static_cast<unsigned char*>(run.allocate(50000));
    std::fill_n(kept, 50000, 0xAB);
    for (int i = 0; i < 2; ++i) run.step(written);
    auto* const later = static_cast<unsigned char*>(run.allocate(50000));
    std::fill_n(later, 50000, 0xCD);
    for (int i = 0; i < 4; ++i) run.step(written);
    REQUIRE(run.allocator.stats().hits > 0);
    void* const held = run.allocate(written.front().bytes);  // in the arena
    if (told) run.allocator.expect_other_steps();
    REQUIRE(run.allocator.is_valid() == "");
    double share = 0;
    for (int i = 0; i < 4; ++i) share = run.step(scheduled);
    left = run.allocator.stats();
    for (int i = 0; i < 50000; ++i) REQUIRE((kept[i] == 0xAB && later[i] == 0xCD));
    for (void* const block : {static_cast<void*>(kept), static_cast<void*>(later), held})
      run.free(block);
    return share;
  };
  Stats told, untold;
  REQUIRE(share_of_fourth(true, told) > 0.9);  // `held` is in the way of some
  (void)share_of_fourth(false, untold);
  REQUIRE(told.arena == told.arena_bound);
  REQUIRE(told.reserved < told.arena + (Bytes{1} << 20));
  REQUIRE(untold.arena > 2 * told.arena);
  REQUIRE(untold.reserved > 2 * told.reserved);
}

namespace {

StepRequests requests_of(const std::vector<test::Operation>& step) {
  StepRequests result;
  for (const test::Operation& one : step)
    result.events.push_back({one.bytes, static_cast<std::uint32_t>(one.frees), false});
  return result;
}

}  // namespace

TEST_CASE("Steps that are foretold find their places from the first one on", "[learn]") {
  const auto written = test::training_step(40, 65536), scheduled = test::training_step(12, 65536);
  const bool moves = GENERATE(false, true);
  Run run(moves ? std::make_unique<test::SimulatedDevice>() : make_host_device(Bytes{1} << 30));
  for (int i = 0; i < 6; ++i) run.step(written);
  const std::vector<StepRequests> kinds{requests_of(scheduled), requests_of(written)};

  SECTION("one kind") {
    const auto foretold = run.allocator.foretell(std::span(kinds).first(1), 1);
    REQUIRE(foretold != nullptr);
    run.allocator.expect_other_steps(foretold.get());
    run.allocator.mark_step(0);
    for (int i = 0; i < 3; ++i) REQUIRE(run.step(scheduled) == 1.0);
    REQUIRE(run.allocator.stats().reserved <
            run.allocator.stats().arena + (Bytes{1} << 20));  // the other plan's memory is gone
  }
  SECTION("two kinds in any turns") {
    const auto foretold = run.allocator.foretell(kinds, 1);
    run.allocator.expect_other_steps(foretold.get());
    run.allocator.mark_step(0);
    for (int i = 0; i < 6; ++i) REQUIRE(run.step(i % 3 == 0 ? written : scheduled) == 1.0);
  }
  SECTION("others come") {
    const auto foretold = run.allocator.foretell(std::span(kinds).first(1), 1);
    run.allocator.expect_other_steps(foretold.get());
    const auto third = test::training_step(31, 40000);
    double share = 0;
    for (int i = 0; i < 12; ++i) share = run.step(third);
    REQUIRE(share == 1.0);  // they were learned
  }
}

TEST_CASE("What a foretold step leaves to the next one has a place, or is the pool's", "[learn]") {
  // Requests 0 and 2 outlive their step. The next one frees 0 before its first request.
  const bool seen = GENERATE(true, false);  // whether it is known where
  StepRequests step;
  step.events = {
      {0, 0, true}, {40000, 0, false}, {50000, 0, false}, {0, 1, false}, {60000, 0, false}};
  if (!seen) step.events.erase(step.events.begin());
  Run run;
  const auto foretold = run.allocator.foretell(std::span(&step, 1), 1);
  REQUIRE(foretold != nullptr);
  run.allocator.expect_other_steps(foretold.get());
  run.allocator.mark_step(0);
  void* last = nullptr;
  std::vector<void*> kept;
  for (int i = 0; i < 4; ++i) {
    if (last != nullptr) run.free(last);
    last = run.allocate(40000);
    run.free(run.allocate(50000));
    kept.push_back(run.allocate(60000));
    run.allocator.mark_step(0);
  }
  REQUIRE(run.allocator.stats().hits == (seen ? 8U : 4U));
  run.free(last);
  for (void* const one : kept) run.free(one);
}

TEST_CASE("What a foretold step leaves has a place where steps of other kinds free it", "[learn]") {
  // Each step leaves a gradient of its own size and one of a parameter's, which the next one frees.
  const auto kinds_of = [](Bytes size) {
    StepRequests step;
    step.events = {{0, 0, true},         {0, 2, true},  {size, 0, false},
                   {2 * size, 0, false}, {0, 1, false}, {60000, 0, false}};
    return step;
  };
  constexpr Bytes sizes[] = {40000, 50000, 70000};
  std::vector<StepRequests> kinds;
  for (const Bytes size : sizes) kinds.push_back(kinds_of(size));
  Run run;
  const auto foretold = run.allocator.foretell(kinds, 1);
  REQUIRE(foretold != nullptr);
  run.allocator.expect_other_steps(foretold.get());
  run.allocator.mark_step(0);
  void *last = nullptr, *gradient = nullptr;
  std::uint64_t asked = 0;
  for (const int which : {0, 1, 2, 0, 2, 1, 1, 0}) {
    if (last != nullptr) run.free(last);
    if (gradient != nullptr) run.free(gradient);
    const Bytes size = sizes[which];
    last = run.allocate(size);
    run.free(run.allocate(2 * size));
    gradient = run.allocate(60000);
    asked += 3;
    run.allocator.mark_step(0);
    REQUIRE(run.allocator.is_valid() == "");
  }
  REQUIRE(run.allocator.stats().hits == asked);
  run.free(last);
  run.free(gradient);
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
  for (std::size_t i = 0; i < 300; ++i) run.step(test::training_step(5 + i));
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

TEST_CASE("The step after the switch takes what the step before left in the pool", "[learn]") {
  const bool waits = GENERATE(false, true);
  Run run(waits ? std::make_unique<test::SimulatedDevice>() : make_host_device(Bytes{1} << 30));
  constexpr Bytes kGradient = Bytes{1} << 20;
  void* weights = run.allocate(kGradient);
  std::vector<void*> gradients;
  Bytes before = 0;
  for (int i = 0; i < 8; ++i) {
    if (run.allocator.stats().arena == 0) before = run.allocator.stats().reserved_peak;
    // As a program does that clears its gradients at the start of a step.
    for (void* gradient : gradients) run.free(gradient);
    gradients.clear();
    for (int k = 0; k < 12; ++k) gradients.push_back(run.allocate(kGradient));
    run.allocator.mark_step(0);
  }
  REQUIRE(run.allocator.stats().hits > 24);
  REQUIRE(run.allocator.stats().pages_moved > 0);
  REQUIRE(run.allocator.stats().reserved_peak <= before + 2 * kGradient);
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

TEST_CASE("Steps that never repeat are not searched for one", "[learn]") {
  Run run;
  for (std::size_t i = 0; i < 30; ++i) run.step(test::training_step(5 + i));
  REQUIRE(run.allocator.stats().plan_searches == 0);
}

TEST_CASE("Requests without marks and without a period are searched a few times only", "[learn]") {
  Run run;
  std::mt19937 random(5);
  for (int i = 0; i < 40'000; ++i) run.free(run.allocate(1 + random() % 100'000));
  // At 1,024 entries, and whenever twice as many are known.
  REQUIRE(run.allocator.stats().plan_searches == 7);
}

TEST_CASE("A program without a period is told so once", "[learn][warnings]") {
  const bool marked = GENERATE(false, true);
  const Warnings warnings;
  Run run;
  std::mt19937 random(5);
  for (std::size_t step = 20; step < 400; ++step) {
    for (std::size_t i = 0; i < step; ++i) run.free(run.allocate(1 + random() % 100'000));
    if (marked) run.allocator.mark_step(0);
  }
  REQUIRE(warnings.names == std::vector<std::string>{"no-period"});
  REQUIRE(run.allocator.stats().plan_searches < 12);
}

TEST_CASE("A program whose steps are too long to be learned is told so once", "[learn][warnings]") {
  const Warnings warnings;
  Run run;
  constexpr std::size_t kRequests = 262'000;
  for (int step = 0; step < 12; ++step) {
    std::mt19937 random(1);  // no period within a step
    for (std::size_t i = 0; i < kRequests; ++i) run.free(run.allocate(64 * (1 + random() % 61)));
    run.allocator.mark_step(0);
  }
  REQUIRE(std::count(warnings.names.begin(), warnings.names.end(), "step-too-long") == 1);
  REQUIRE_THAT(warnings.texts.back(),
               Catch::Matchers::Contains("steps repeat after 262000 requests"));
  REQUIRE_THAT(warnings.texts.back(), Catch::Matchers::Contains("518144 requests"));
}

TEST_CASE("Steps that alternate are served with a mark after each", "[learn]") {
  Run run;
  const auto discriminator = test::training_step(20), generator = test::training_step(31, 8192);
  for (int round = 0; round < 4; ++round) {
    run.step(discriminator);
    run.step(generator);
  }
  double share = 1;
  for (int round = 0; round < 20; ++round) {
    share = std::min(share, run.step(discriminator));
    share = std::min(share, run.step(generator));
  }
  REQUIRE(share == 1.0);
  REQUIRE(run.allocator.stats().plans_learned == 1);
}

TEST_CASE("A cycle of many marked steps is served as it would be without marks", "[learn]") {
  Run run;
  double share = 0;
  for (int cycle = 0; cycle < 12; ++cycle) {
    share = 1;
    for (std::size_t i = 0; i < 20; ++i)
      share = std::min(share, run.step(test::training_step(15 + i)));
  }
  REQUIRE(share == 1.0);
}

TEST_CASE("Steps are learned from their requests when marks come no more", "[learn]") {
  Run run;
  for (std::size_t i = 0; i < 10; ++i) run.step(test::training_step(5 + i));
  double share = 0;
  for (int i = 0; i < 900; ++i) share = run.step(test::training_step(30), false);
  REQUIRE(share == 1.0);
}

TEST_CASE("An arena that was refused is asked for again, at growing distances", "[learn]") {
  auto made = std::make_unique<test::SimulatedDevice>(
      test::SimulatedDevice::Options{.total_bytes = Bytes{1} << 28, .maps_pages = false});
  test::SimulatedDevice& device = *made;
  Run run(std::move(made));
  Warnings warnings;
  const auto step = test::training_step(20);
  run.step(step);
  // At marks: segments that went for the arena come again.
  const auto refuse_arena = [&] {
    run.step(step, false);
    device.fail_call(1, {Status::Code::kOutOfMemory, "reserve"}, test::CallKind::kReserve, true);
    run.allocator.mark_step(0);
    device.fail_none();
  };
  for (int i = 0; i < 200; ++i) refuse_arena();
  REQUIRE(warnings.names == std::vector<std::string>{"arena-memory"});
  // After 4, 8, 16, 32 and 64 steps more.
  REQUIRE(run.allocator.stats().plan_failures == 6);
  REQUIRE(run.allocator.stats().plan_searches == 1);

  SECTION("and is served when there is memory for it") {
    double share = 0;
    for (int i = 0; i < 200; ++i) share = run.step(step);
    REQUIRE(share == 1.0);
    REQUIRE(run.allocator.stats().plan_searches == 1);
  }
  SECTION("and other steps are learned meanwhile") {
    const auto other = test::training_step(7);
    for (int i = 0; i < 10; ++i) run.step(other);
    REQUIRE(run.allocator.stats().plan_searches == 2);
    double share = 0;
    for (int i = 0; i < 200; ++i) share = run.step(other);
    REQUIRE(share == 1.0);
  }
}

TEST_CASE("An arena of one allocation is held in the units that the driver takes, and stays",
          "[learn]") {
  constexpr Bytes unit = Bytes{2} << 20;
  Run run(std::make_unique<test::SimulatedDevice>(
      test::SimulatedDevice::Options{.total_bytes = Bytes{1} << 28, .maps_pages = false}));
  double share = 0;
  for (int i = 0; i < 40; ++i) share = run.step(test::training_step(30, 100000));
  REQUIRE(share == 1.0);  // what was rounded up is no rest of an earlier plan
  const Stats stats = run.allocator.stats();
  REQUIRE(stats.arena % unit != 0);
  REQUIRE((stats.reserved - stats.pool_reserved) % unit == 0);
  REQUIRE(stats.reserved - stats.pool_reserved - stats.arena < unit);
}

TEST_CASE("A plan that hardly serves the program is one warning that says what to do", "[learn]") {
  const test::TemporaryFolder folder;
  Config config;
  config.plan = folder / "other.plan";
  {
    Run run(config);
    for (int i = 0; i < 4; ++i) run.step(test::training_step(20));
  }
  config.mode = Mode::kServe;
  Run run(config);
  Warnings warnings;
  SECTION("with marks") {
    for (int i = 0; i < 10; ++i) run.step(test::training_step(31, 8192));
    REQUIRE_THAT(warnings.texts.at(0), Catch::Matchers::Contains("of the last 279 requests"));
  }
  SECTION("without") {
    for (int i = 0; i < 100; ++i) run.step(test::training_step(31, 8192), false);
  }
  REQUIRE(warnings.names == std::vector<std::string>{"plan-misfit"});
  REQUIRE_THAT(warnings.texts[0], Catch::Matchers::Contains("BERTH_MODE=learn"));
}

TEST_CASE("A plan that serves its program but for another step now and then is no misfit",
          "[learn]") {
  const test::TemporaryFolder folder;
  Config config;
  config.plan = folder / "kept.plan";
  {
    Run run(config);
    for (int i = 0; i < 4; ++i) run.step(test::training_step(20));
  }
  config.mode = Mode::kServe;
  Run run(config);
  Warnings warnings;
  for (int i = 0; i < 100; ++i) run.step(test::training_step(i % 10 == 9 ? 31 : 20));
  REQUIRE(warnings.names.empty());
}

TEST_CASE("A file that is no plan is refused and stays as it is", "[learn]") {
  const test::TemporaryFolder folder;
  Config config;
  config.plan = folder / "notes.txt";
  const std::string notes = GENERATE(std::string("buy milk\n"), std::string());
  write_file_atomically(config.plan, std::as_bytes(std::span(notes)));
  REQUIRE_THROWS_AS(Run(config), Error);
  REQUIRE(content(config.plan) == notes);
}

TEST_CASE("A damaged plan is refused in mode learn and stays as it is", "[learn]") {
  const test::TemporaryFolder folder;
  Config config;
  config.plan = folder / "kept.plan";
  {
    Run run(config);
    for (int i = 0; i < 4; ++i) run.step(test::training_step(20));
  }
  std::string damaged = content(config.plan);
  damaged[damaged.size() / 2] ^= 1;
  write_file_atomically(config.plan, std::as_bytes(std::span(damaged)));
  REQUIRE_THROWS_AS(Run(config), Error);
  REQUIRE(content(config.plan) == damaged);
}

TEST_CASE("A plan file that cannot be opened is an error in mode learn", "[learn]") {
  const test::TemporaryFolder folder;
  Config config;
  config.plan = folder / "pipe";
  REQUIRE(::mkfifo(config.plan.c_str(), 0600) == 0);
  REQUIRE_THROWS_AS(Run(config), Error);
}

TEST_CASE("A file that takes the plan's place while it is made is not overwritten", "[learn]") {
  const test::TemporaryFolder folder;
  Config config;
  config.plan = folder / "kept.plan";
  Run run(config);
  Warnings warnings;
  const std::string notes = "buy milk\n";
  run.step(test::training_step(20));
  write_file_atomically(config.plan, std::as_bytes(std::span(notes)));
  for (int i = 0; i < 4; ++i) run.step(test::training_step(20));
  REQUIRE(content(config.plan) == notes);
  REQUIRE(warnings.names == std::vector<std::string>{"plan-failed"});
}

TEST_CASE("A plan is written to the end of a symbolic link", "[learn]") {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "plans");
  std::filesystem::create_symlink("plans/kept.plan", folder / "link.plan");
  Config config;
  config.plan = folder / "link.plan";
  Run run(config);
  for (int i = 0; i < 4; ++i) run.step(test::training_step(20));
  REQUIRE(std::filesystem::is_symlink(folder / "link.plan"));
  REQUIRE(read_plan(folder / "plans/kept.plan").sequences.size() == 1);
}

TEST_CASE("Processes that learn to one file leave a whole plan", "[learn]") {
  const test::TemporaryFolder folder;
  Config config;
  config.plan = folder / "kept.plan";
  std::vector<pid_t> children;
  for (std::size_t process = 0; process < 4; ++process) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        for (int again = 0; again < 5; ++again) {
          Run run(config);
          for (int i = 0; i < 12; ++i) run.step(test::training_step(20 + process));
        }
        ::_exit(0);
      } catch (...) {
        ::_exit(1);
      }
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
  }
  REQUIRE(read_plan(config.plan).sequences.size() == 1);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path()))
    ++files;
  REQUIRE(files == 1);
}
