#include "csrc/runtime/allocator.h"

#include "csrc/core/bytes.h"
#include "csrc/core/file.h"
#include "csrc/device/host_device.h"
#include "csrc/place/plan_step.h"
#include "csrc/plan/file.h"
#include "csrc/trace/file.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/forked_child.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_step.h"
#include "tests/support/temporary_folder.h"

#include <berth/warnings.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

using namespace berth;

namespace {

struct Fixture {
  explicit Fixture(Config config = {}, Bytes total = Bytes{1} << 30)
      : device(make_host_device(total)), allocator(*device, options(std::move(config))) {}
  static Allocator::Options options(Config config) {
    Allocator::Options options;
    options.config = std::move(config);
    options.start_threads = false;
    return options;
  }
  void* allocate(Bytes size) { return allocator.allocate(size, 0); }
  void free(void* pointer) { REQUIRE(allocator.free(pointer) == Allocator::FreeOutcome::kDone); }
  void step(const std::vector<test::Operation>& operations) {
    test::run_step(operations, *this);
    allocator.mark_step(0);
    REQUIRE(allocator.is_valid() == "");
  }

  std::unique_ptr<Device> device;
  test::CheckedAllocator allocator;
};

class Warnings {
 public:
  Warnings() {
    set_warning_sink([this](std::string_view name, const std::string& text) {
      names.emplace_back(name);
      texts.push_back(text);
    });
  }
  ~Warnings() { set_warning_sink({}); }
  std::vector<std::string> names, texts;
};

}  // namespace

TEST_CASE("Blocks are aligned and hold what is written into them", "[allocator]") {
  Fixture fixture;
  std::mt19937 random(3);
  std::vector<std::pair<unsigned char*, std::size_t>> blocks;
  for (int i = 0; i < 2000; ++i) {
    if (blocks.size() < 50 || random() % 2 == 0) {
      const std::size_t size = 1 + random() % 5000;
      auto* block = static_cast<unsigned char*>(fixture.allocate(size));
      REQUIRE(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
      std::memset(block, static_cast<int>(size % 251), size);
      blocks.emplace_back(block, size);
    } else {
      const std::size_t i_victim = random() % blocks.size();
      auto [block, size] = blocks[i_victim];
      for (std::size_t k = 0; k < size; k += 97) REQUIRE(block[k] == size % 251);
      fixture.free(block);
      blocks[i_victim] = blocks.back();
      blocks.pop_back();
    }
  }
  REQUIRE(fixture.allocator.is_valid() == "");
}

TEST_CASE("A size of zero is null and its free does nothing", "[allocator]") {
  Fixture fixture;
  REQUIRE(fixture.allocate(0) == nullptr);
  fixture.free(nullptr);
  REQUIRE(fixture.allocator.stats().requests == 0);
}

TEST_CASE("Double frees and interior pointers and foreign ones are told apart",
          "[allocator][misuse]") {
  Fixture fixture;
  auto* block = static_cast<std::byte*>(fixture.allocate(1000));
  int foreign = 0;
  REQUIRE(fixture.allocator.free(&foreign) == Allocator::FreeOutcome::kForeign);
  REQUIRE(fixture.allocator.free(block + 64) == Allocator::FreeOutcome::kUnknown);
  fixture.free(block);
  REQUIRE(fixture.allocator.free(block) == Allocator::FreeOutcome::kUnknown);
  REQUIRE(fixture.allocator.stats().misuses == 2);
}

TEST_CASE("A size beyond the largest is refused by name", "[allocator][misuse]") {
  Fixture fixture;
  REQUIRE_THROWS_WITH(fixture.allocate(kMaxBytes + 1), Catch::Matchers::Contains("the most is"));
}

TEST_CASE("A request that is refused is counted under one outcome as any other",
          "[allocator][statistics]") {
  Fixture fixture;
  CHECK_THROWS_AS(fixture.allocate(kMaxBytes + 1), Error);
  CHECK(test::inconsistency(fixture.allocator.stats()) == "");
  CHECK_THROWS_AS(fixture.allocate(Bytes{4} << 30), OutOfMemory);
  CHECK(test::inconsistency(fixture.allocator.stats()) == "");
}

TEST_CASE("The reserved peak stays when an arena that filled is given back",
          "[allocator][statistics]") {
  test::SimulatedDevice device;
  test::CheckedAllocator allocator(device, Fixture::options({}));
  const auto step = test::training_step(20, 64 << 10);
  struct Memory {
    Allocator& allocator;
    void* allocate(Bytes size) { return allocator.allocate(size, 0); }
    void free(void* block) { (void)allocator.free(block); }
  } memory{allocator};
  while (allocator.stats().hits == 0) {
    test::run_step(step, memory);
    allocator.mark_step(0);
  }
  // No mark any more: the arena goes on to take pages as requests come to them.
  test::run_step(step, memory);
  const Stats full = allocator.stats();
  REQUIRE(allocator.trim() > 0);
  CHECK(allocator.stats().reserved_peak >= full.reserved);
}

TEST_CASE("Bytes that are taken where somebody else wants them count as a request",
          "[allocator][statistics]") {
  test::SimulatedDevice device;
  test::CheckedAllocator allocator(device, Fixture::options({}));
  void* const block = allocator.allocate(4096, 0);
  REQUIRE(allocator.free(block) == Allocator::FreeOutcome::kDone);
  REQUIRE(allocator.allocate_at(block, 4096, 0));
  const Stats stats = allocator.stats();
  CHECK(stats.requests == 2);
  CHECK(test::inconsistency(stats) == "");
}

TEST_CASE("Exhaustion says asked and had and limit and leaves the allocator well", "[allocator]") {
  Config config;
  config.memory_limit = Bytes{64} << 20;
  Fixture fixture(config);
  void* kept = fixture.allocate(Bytes{32} << 20);
  try {
    (void)fixture.allocate(Bytes{48} << 20);
    FAIL("more than the limit was handed out");
  } catch (const OutOfMemory& error) {
    REQUIRE_THAT(error.what(), Catch::Matchers::Contains("asked 48.0 MiB") &&
                                   Catch::Matchers::Contains("live 32.0 MiB") &&
                                   Catch::Matchers::Contains("of 64.0 MiB"));
  }
  REQUIRE(fixture.allocator.is_valid() == "");
  fixture.free(kept);
  fixture.free(fixture.allocate(Bytes{48} << 20));
}

TEST_CASE("A step is learned in place and served by plan from the next mark on",
          "[allocator][learn]") {
  Fixture fixture;
  const auto step = test::training_step(20);
  for (int i = 0; i < 3; ++i) fixture.step(step);
  const Stats before = fixture.allocator.stats();
  REQUIRE(before.plans_learned == 1);
  REQUIRE(before.arena == before.arena_bound);
  for (int i = 0; i < 5; ++i) fixture.step(step);
  const Stats after = fixture.allocator.stats();
  REQUIRE(after.hits - before.hits == 5 * 60);
  REQUIRE(after.requests - before.requests == 5 * 60);
  REQUIRE(after.late_frees == 0);
}

TEST_CASE("A learned plan gives the same addresses in every step", "[allocator][learn]") {
  Fixture fixture;
  const auto step = test::training_step(10);
  for (int i = 0; i < 4; ++i) fixture.step(step);
  struct Notebook {
    Fixture& fixture;
    std::vector<void*> pointers;
    void* allocate(Bytes size) {
      pointers.push_back(fixture.allocate(size));
      return pointers.back();
    }
    void free(void* pointer) { fixture.free(pointer); }
  };
  Notebook first{fixture, {}}, second{fixture, {}};
  test::run_step(step, first);
  fixture.allocator.mark_step(0);
  test::run_step(step, second);
  REQUIRE(first.pointers == second.pointers);
}

TEST_CASE("A trace is recorded then planned then served with every request at its offset",
          "[allocator][serve]") {
  const test::TemporaryFolder folder;
  const auto step = test::training_step(12);
  {
    Config config;
    config.mode = Mode::kRecord;
    config.trace = folder / "run.trace";
    Fixture fixture(config);
    void* weight = fixture.allocate(123456);
    for (int i = 0; i < 4; ++i) fixture.step(step);
    fixture.free(weight);
  }
  const Trace trace = read_trace(folder / "run.trace");
  const auto cut = extract_step(trace);
  REQUIRE(cut.has_value());
  REQUIRE(cut->requests.size() == 36);
  const Plan plan = plan_step(*cut, trace, 64);
  REQUIRE(plan.arena_bytes == plan.lower_bound);
  write_plan(folder / "run.plan", plan);

  Config config;
  config.mode = Mode::kServe;
  config.plan = folder / "run.plan";
  config.check = CheckLevel::kFull;
  Fixture fixture(config);
  void* weight = fixture.allocate(123456);
  for (int i = 0; i < 4; ++i) fixture.step(step);
  const Stats stats = fixture.allocator.stats();
  REQUIRE(stats.hits == 3 * 36);
  REQUIRE(stats.unplanned == 36 + 1);
  REQUIRE(stats.misses_size + stats.misses_busy + stats.misses_lane == 0);
  fixture.free(weight);
}

TEST_CASE("A plan for another program is one warning and the requests decide",
          "[allocator][serve]") {
  const test::TemporaryFolder folder;
  const auto step = test::training_step(5);
  Plan plan;
  {
    Fixture learner;
    for (int i = 0; i < 4; ++i) learner.step(step);
    plan = *learner.allocator.plan();
  }
  plan.program.torch_version = "1.0";
  write_plan(folder / "other.plan", plan);
  Warnings warnings;
  Config config;
  config.mode = Mode::kServe;
  config.plan = folder / "other.plan";
  Allocator::Options options = Fixture::options(config);
  options.program.torch_version = "2.11";
  const auto device = make_host_device(Bytes{1} << 30);
  test::CheckedAllocator allocator(*device, options);
  REQUIRE(warnings.names == std::vector<std::string>{"plan-mismatch"});
  REQUIRE_THAT(warnings.texts[0],
               Catch::Matchers::Contains("1.0") && Catch::Matchers::Contains("2.11"));
  REQUIRE(allocator.plan().has_value());
}

TEST_CASE("A plan with another alignment is refused", "[allocator][serve]") {
  const test::TemporaryFolder folder;
  Plan plan;
  plan.alignment = 512;
  plan.lane_keys = {0};
  plan.sequences = {
      Sequence{.period = 1,
               .marks = {},
               .slots = {{.offset = 0, .requested = 500, .size = 512, .birth = 0, .length = 1}}}};
  plan.arena_bytes = 512;
  write_plan(folder / "x.plan", plan);
  Config config;
  config.mode = Mode::kServe;
  config.plan = folder / "x.plan";
  REQUIRE_THROWS_WITH(Fixture(config),
                      Catch::Matchers::Contains("512") && Catch::Matchers::Contains("64"));
}

TEST_CASE("A missing or damaged plan is an input error", "[allocator][serve]") {
  const test::TemporaryFolder folder;
  Config config;
  config.mode = Mode::kServe;
  config.plan = folder / "none.plan";
  REQUIRE_THROWS_AS(Fixture(config), Error);
}

TEST_CASE("Threads may allocate and free each other's blocks", "[allocator][threads]") {
  const auto device = make_host_device(Bytes{1} << 30);
  test::CheckedAllocator allocator(*device, {});
  std::vector<std::vector<void*>> handed(4);
  const auto work = [&](std::size_t thread) {
    std::mt19937 random(static_cast<unsigned>(thread));
    for (int i = 0; i < 3000; ++i) {
      void* block = allocator.allocate(1 + random() % 10000, thread);
      std::memset(block, 1, 1);
      if (i % 3 == 0) {
        handed[thread].push_back(block);
      } else {
        allocator.free(block);
      }
      if (thread == 0 && i % 100 == 0) allocator.mark_step(0);
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < 4; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  for (std::size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (void* block : handed[(thread + 1) % 4]) allocator.free(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(allocator.is_valid() == "");
  REQUIRE(allocator.stats().live == 0);
  REQUIRE(allocator.stats().misuses == 0);
}

TEST_CASE("A forked child gets no blocks and frees nothing and the parent goes on",
          "[allocator][fork]") {
  Fixture fixture;
  void* block = fixture.allocate(1000);
  REQUIRE(test::holds_in_forked_child(fixture.allocator, [&] {
    bool refused = false;
    try {
      (void)fixture.allocator.allocate(100, 0);
    } catch (const Error&) {
      refused = true;
    }
    return refused && fixture.allocator.free(block) == Allocator::FreeOutcome::kDone;
  }));
  fixture.free(block);
}

TEST_CASE("A forked child may take its copy of an allocator with a planner down",
          "[allocator][fork]") {
  const auto device = make_host_device(Bytes{1} << 30);
  Allocator::Options options;
  options.start_threads = true;
  auto allocator = std::make_unique<Allocator>(*device, options);
  struct {
    Allocator& allocator;
    void* allocate(Bytes size) { return allocator.allocate(size, 0); }
    void free(void* block) { (void)allocator.free(block); }
  } memory{*allocator};
  // A plan comes from the planner's thread, which then stands by.
  while (allocator->stats().plans_learned == 0) {
    test::run_step(test::training_step(4), memory);
    allocator->mark_step(0);
  }
  REQUIRE(test::holds_in_forked_child(*allocator, [&] {
    allocator->shut_down();
    allocator.reset();
    return true;
  }));
}

TEST_CASE("Blocks may be freed after the allocator was shut down", "[allocator]") {
  const test::TemporaryFolder folder;
  Config config;
  config.stats = folder / "stats.json";
  Fixture fixture(config);
  void* block = fixture.allocate(1000);
  fixture.allocator.shut_down();
  fixture.allocator.shut_down();
  fixture.free(block);
  const auto text = read_file(folder / "stats.json", 100000);
  const std::string json(reinterpret_cast<const char*>(text.data()), text.size());
  REQUIRE_THAT(json, Catch::Matchers::Contains("\"requests\": 1"));
}

TEST_CASE("A verbose allocator says in one line at exit how its requests went", "[allocator]") {
  Config config;
  config.verbose = true;
  Warnings warnings;
  Fixture fixture(config);
  for (int i = 0; i < 10; ++i) fixture.step(test::training_step(4));
  fixture.allocator.shut_down();
  fixture.allocator.shut_down();
  const Stats stats = fixture.allocator.stats();
  REQUIRE(warnings.names == std::vector<std::string>{"summary"});
  REQUIRE(warnings.texts[0] == "cpu 0: " + stats.to_line());
  REQUIRE_THAT(stats.to_line(),
               Catch::Matchers::Contains("10 steps") &&
                   Catch::Matchers::Contains(std::to_string(stats.hits) + " hits") &&
                   Catch::Matchers::Contains(" 0 misses (0 size, 0 busy, 0 lane)") &&
                   Catch::Matchers::Contains("arena " + format_bytes(stats.arena) + " / bound ") &&
                   Catch::Matchers::Contains("reserved "));
}

TEST_CASE("An allocator that is not verbose says nothing at exit", "[allocator]") {
  Warnings warnings;
  { Fixture fixture; }
  REQUIRE(warnings.names.empty());
}

TEST_CASE("A recorder outlives the end of recording, for those who listen elsewhere",
          "[runtime][record]") {
  const test::TemporaryFolder folder;
  const auto device = make_host_device(Bytes{1} << 30);
  Allocator::Options options;
  options.config.mode = Mode::kRecord;
  options.config.trace = folder / "run.trace";
  test::CheckedAllocator allocator(*device, options);
  Recorder* const recorder = allocator.recorder();
  REQUIRE(recorder != nullptr);
  allocator.shut_down();
  REQUIRE(allocator.recorder() == nullptr);
  recorder->append(trace::RangeEnd{.range = 1});  // as an operator on another thread does
  for (const trace::Entry& entry : read_trace(options.config.trace).entries)
    REQUIRE_FALSE(std::holds_alternative<trace::RangeEnd>(entry.event));
}
