#include "csrc/runtime/trial.h"

#include "csrc/runtime/allocator.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/simulated_device.h"
#include "tests/support/temporary_folder.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace berth;

namespace {

constexpr std::uint64_t kHandles = 100;

// Steps of a run, by the changes of each.
class Steps {
 public:
  Trial::Turn step(std::uint64_t changes, bool hit = true) {
    changes_ += changes;
    const Trial::Turn turn = trial.step_ended({.changes = changes_,
                                               .plan = plan ? &plans[which] : nullptr,
                                               .hit = hit && plan,
                                               .handles = kHandles,
                                               .may_turn = may_turn});
    if (turn == Trial::Turn::kToPool) plan = false;
    if (turn == Trial::Turn::kToPlan) plan = true;
    return turn;
  }
  // After how many equal steps it turns, up to `most`.
  std::uint64_t until_turn(std::uint64_t changes, std::uint64_t most = 10'000) {
    for (std::uint64_t i = 1; i <= most; ++i)
      if (step(changes) != Trial::Turn::kGoOn) return i;
    return 0;
  }
  // The pool serves, then a plan.
  void begin(std::uint64_t changes, int steps = 10) {
    for (int i = 0; i < steps; ++i) (void)step(changes);
    plan = true;
  }

  Trial trial;
  bool plan = false, may_turn = true;
  std::size_t which = 0;  // of the plans
  std::array<char, 2> plans{};

 private:
  std::uint64_t changes_ = 0;
};

constexpr std::uint64_t kJudged = Trial::kSettling + Trial::kCounted;

}  // namespace

TEST_CASE("A plan that changes more than the pool did is set aside", "[runtime][trial]") {
  Steps steps;
  steps.begin(3);
  CHECK(steps.until_turn(100) == kJudged);
  CHECK(steps.trial.away());
  // The pool is as it was.
  CHECK(steps.until_turn(3, 200) == 0);
}

TEST_CASE("A plan that changes little more than the pool did serves on", "[runtime][trial]") {
  Steps steps;
  steps.begin(90);
  CHECK(steps.until_turn(90 + Trial::kWorth, 1000) == 0);
  Steps few;
  few.begin(3);
  CHECK(few.until_turn(Trial::kWorth + 2, 1000) == 0);
  Steps more;
  more.begin(90);
  CHECK(more.until_turn(90 * 2) == kJudged);
}

TEST_CASE("Two steps of eight that change much are no reason", "[runtime][trial]") {
  Steps steps;
  steps.begin(3);
  for (int i = 0; i < 25; ++i) {
    for (int calm = 0; calm < 6; ++calm) REQUIRE(steps.step(4) == Trial::Turn::kGoOn);
    for (int burst = 0; burst < 2; ++burst) REQUIRE(steps.step(500) == Trial::Turn::kGoOn);
  }
}

TEST_CASE("What a new plan changes at first is not counted", "[runtime][trial]") {
  Steps steps;
  steps.begin(3);
  for (int i = 0; i < 25; ++i) {
    steps.which = 1 - steps.which;
    for (std::size_t step = 0; step < Trial::kSettling; ++step)
      REQUIRE(steps.step(500) == Trial::Turn::kGoOn);
    for (int step = 0; step < 4; ++step) REQUIRE(steps.step(4) == Trial::Turn::kGoOn);
  }
  SECTION("but a plan in each step is judged, too") {
    std::uint64_t judged = 0;
    for (std::uint64_t step = 1; judged == 0 && step < 100; ++step) {
      steps.which = 1 - steps.which;
      if (steps.step(500) == Trial::Turn::kToPool) judged = step;
    }
    CHECK(judged != 0);
  }
}

TEST_CASE("Where the pool is not known it is tried once the plan has paid for it",
          "[runtime][trial]") {
  Steps steps;
  steps.begin(3, 5);
  // 4 times what it takes to empty the arena and fill it, in steps of 100.
  CHECK(steps.until_turn(100) == Trial::kSettling + 4 * 2 * kHandles / 100);
  SECTION("it is no better") {
    CHECK(steps.until_turn(100) == kJudged);
    CHECK(!steps.trial.away());
    // There and back took 2,400 changes.
    CHECK(steps.until_turn(100) == Trial::kSettling + 4 * 24);
  }
  SECTION("it is better") { CHECK(steps.until_turn(5, 200) == 0); }
}

TEST_CASE("Steps that a plan does not serve are not its own", "[runtime][trial]") {
  Steps steps;
  steps.begin(3);
  for (int i = 0; i < 200; ++i) REQUIRE(steps.step(100, false) == Trial::Turn::kGoOn);
  CHECK(steps.until_turn(100) != 0);
}

TEST_CASE("A plan that was set aside comes back for a trial", "[runtime][trial]") {
  Steps steps;
  steps.begin(3);
  CHECK(steps.until_turn(100) == kJudged);
  CHECK(steps.until_turn(0) == 256);
  SECTION("its steps repeat now") {
    CHECK(steps.until_turn(0, 2000) == 0);
    CHECK(!steps.trial.away());
  }
  SECTION("it is no better: later and later") {
    for (std::uint64_t wait = 512; wait <= 4096; wait *= 2) {
      CHECK(steps.until_turn(100) == kJudged);
      CHECK(steps.until_turn(0) == wait);
    }
  }
}

TEST_CASE("What a program gives back itself is nobody's change", "[runtime][trial]") {
  Steps steps;
  steps.begin(3);
  for (int i = 0; i < 50; ++i) {
    for (int step = 0; step < 10; ++step) REQUIRE(steps.step(100) == Trial::Turn::kGoOn);
    steps.trial.trimmed();
  }
}

TEST_CASE("A plan stays while it may not be set aside", "[runtime][trial]") {
  Steps steps;
  steps.begin(3);
  steps.may_turn = false;
  for (int i = 0; i < 50; ++i) REQUIRE(steps.step(100) == Trial::Turn::kGoOn);
  steps.may_turn = true;
  CHECK(steps.step(100) == Trial::Turn::kToPool);
}

namespace {

// Whose steps begin alike and go on with blocks of any sizes, freed in any order.
class Irregular {
 public:
  explicit Irregular(std::uint64_t seed, Bytes limit = 0, const std::string& plan = {})
      : limited_(limit != 0),
        random_(seed),
        allocator_(device_, options(seed % 2 == 0 ? 24 * kPage : 0, limit, plan)) {}
  Irregular(const Irregular&) = delete;
  Irregular& operator=(const Irregular&) = delete;

  void step(bool alike) {
    for (int i = 0; i < 24; ++i) ask(Bytes(3 + i % 5) * kPage / 2);
    free_some(12);
    const std::uint64_t first = alike ? 24 : 12 + random_() % 24;
    for (std::uint64_t i = 0; i < first; ++i)
      ask(alike ? Bytes(1 + i % 7) * kPage : Bytes(1 + random_() % 56) * kPage / 4);
    free_some(blocks_.size());
    allocator_.mark_step(0);
  }
  const Allocator& allocator() const { return allocator_; }
  const test::SimulatedDevice& device() const { return device_; }

 private:
  static constexpr Bytes kPage = 65536;
  static Allocator::Options options(Bytes handle, Bytes limit, const std::string& plan) {
    Allocator::Options options;
    options.config.handle = handle;
    options.config.memory_limit = limit;
    options.config.plan = plan;
    options.start_threads = false;
    return options;
  }
  void ask(Bytes size) {
    const LaneKey lane = random_() % 16 == 0;
    try {
      blocks_.push_back({allocator_.allocate(size, lane), size, lane});
    } catch (const Error&) {  // under a limit: a program that goes on without
      REQUIRE(limited_);
    }
  }
  void free_some(std::size_t count) {
    for (; count > 0 && !blocks_.empty(); --count) {
      std::swap(blocks_[random_() % blocks_.size()], blocks_.back());
      device_.touch(blocks_.back().lane, blocks_.back().pointer, blocks_.back().size);
      REQUIRE(allocator_.free(blocks_.back().pointer) == Allocator::FreeOutcome::kDone);
      blocks_.pop_back();
    }
  }

  struct Block {
    void* pointer = nullptr;
    Bytes size = 0;
    LaneKey lane = 0;
  };
  const bool limited_;
  std::mt19937_64 random_;
  test::SimulatedDevice device_{
      {.total_bytes = Bytes{1} << 30, .page_bytes = kPage, .handles = true}};
  test::CheckedAllocator allocator_;
  std::vector<Block> blocks_;
};

}  // namespace

TEST_CASE("A plan is set aside and comes back while blocks live", "[runtime][trial]") {
  std::uint64_t aside = 0, back = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    Irregular program(seed);
    for (int i = 0; i < 6; ++i) program.step(true);
    for (int i = 0; i < 150; ++i) {
      program.step(false);
      if (i % 3 == 0) REQUIRE(program.allocator().is_valid() == "");
    }
    aside += program.allocator().stats().plans_set_aside;
    const bool away = !program.allocator().plan();
    for (int i = 0; i < 300; ++i) program.step(true);
    back += away && program.allocator().plan();
    CHECK(program.device().violations().empty());
  }
  CHECK(aside > 0);
  CHECK(back > 0);
}

TEST_CASE("No plan is set aside near a limit", "[runtime][trial]") {
  std::uint64_t aside = 0, near_limit = 0, hits = 0;
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    CAPTURE(seed);
    const auto run = [&](Bytes limit) {
      Irregular program(seed, limit);
      for (int i = 0; i < 6; ++i) program.step(true);
      for (int i = 0; i < 150; ++i) program.step(false);
      return program.allocator().stats();
    };
    const Stats free = run(0);
    const Stats tight = run(free.live_peak + free.live_peak / 32);
    aside += free.plans_set_aside;
    near_limit += tight.plans_set_aside;
    hits += tight.hits;
  }
  CHECK(aside > 2);
  CHECK(near_limit == 0);
  CHECK(hits > 1000);
}

TEST_CASE("A plan is on disk while it serves, not while it is set aside", "[runtime][trial]") {
  const test::TemporaryFolder folder;
  std::uint64_t aside = 0, back = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    const std::string path = folder / (seed % 3 == 0 ? "plans/" : std::to_string(seed) + ".plan");
    const auto there = [&] {
      return seed % 3 == 0 ? std::filesystem::exists(path) && !std::filesystem::is_empty(path)
                           : std::filesystem::exists(path);
    };
    Irregular program(seed, 0, path);
    for (int i = 0; i < 6; ++i) program.step(true);
    std::uint64_t before = 0;
    for (int i = 0; i < 450; ++i) {
      program.step(i >= 150);
      const std::uint64_t turns = program.allocator().stats().plans_set_aside;
      const bool away = turns != 0 && !program.allocator().plan();
      aside += turns - before;
      back += before != 0 && !away;
      before = turns;
      CAPTURE(i, turns, away, program.allocator().stats().plans_learned,
              program.allocator().stats().plans_declined);
      REQUIRE(there() == (program.allocator().stats().plans_learned != 0 && !away));
    }
    std::filesystem::remove_all(path);
  }
  CHECK(aside > 0);
  CHECK(back > 0);
}
