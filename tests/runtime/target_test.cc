#include "csrc/runtime/allocator.h"
#include "tests/catch.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_plan.h"
#include "tests/support/small_program.h"
#include "tests/support/temporary_folder.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <iterator>
#include <optional>
#include <random>
#include <utility>
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

Allocator::Options learning(Bytes limit = 0) {
  Allocator::Options options;
  options.alignment = 512;
  options.config.mode = Mode::kLearn;
  options.config.memory_limit = limit;
  options.config.plan_time_limit_seconds = 60;
  options.start_threads = false;
  return options;
}

double held_of_live(const Stats& stats) {
  return static_cast<double>(stats.reserved_peak) / static_cast<double>(stats.live_peak);
}

// Steps of random lengths, each a stack of blocks that is freed from the top, beside blocks that
// stay: one more every few steps.
Held train(test::SimulatedDevice& device, int steps, bool vary, Bytes limit = 0) {
  Allocator allocator(device, learning(limit));
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
  held.of_live = held_of_live(stats);
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

// Four pages more than what lives would be a third of it here.
TEST_CASE("Beside little that lives few pages are held", "[learn][target]") {
  const std::size_t kinds = GENERATE(2, 64);
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  Allocator::Options options = learning();
  options.pool.growth_bytes = options.pool.resident_growth_bytes = kPage;
  options.config.plan_time_limit_seconds = 0.1;
  Allocator allocator(device, options);
  std::mt19937 random(5);
  std::vector<std::vector<Bytes>> steps(kinds);
  for (std::vector<Bytes>& step : steps) {
    step.resize(50 + random() % 150);
    for (Bytes& bytes : step) bytes = 512 * (1 + random() % 8000);
  }
  void* kept = nullptr;
  for (int step = 0; step < 400; ++step) {
    void* first = nullptr;
    std::deque<void*> live;
    for (const Bytes bytes : steps[random() % kinds]) {
      void* const block = allocator.allocate(bytes, 0);
      if (std::exchange(first, first == nullptr ? block : first) == nullptr) continue;
      live.push_back(block);
      if (live.size() <= 6) continue;
      allocator.free(live.front());
      live.pop_front();
    }
    for (void* const block : live) allocator.free(block);
    if (kept != nullptr) allocator.free(kept);
    kept = first;
    allocator.mark_step(0);
  }
  allocator.free(kept);
  const Stats stats = allocator.stats();
  CAPTURE(kinds, stats.reserved_peak, stats.live_peak, stats.hits, stats.requests);
  CHECK(stats.hits > stats.requests / 4);
  CHECK(held_of_live(stats) <= 1.25);
}

// What blocks in buckets leave of their pages is little beside what they spare: few requests go to
// the pool for it.
TEST_CASE("Buckets serve steps of random lengths on large pages", "[learn][target]") {
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  Allocator allocator(device, learning());
  test::Program program;
  std::mt19937 random(7);
  Stats before;
  for (int step = 0; step < 200; ++step) {
    if (step == 50) before = allocator.stats();
    const Bytes length = 64 + 48 * (random() % 20);
    program.run(test::Program::training({.layers = 20, .batch = 16 * length}), allocator);
    allocator.mark_step(0);
  }
  const Stats stats = allocator.stats();
  const auto served =
      static_cast<double>(stats.hits + stats.hits_bucket - before.hits - before.hits_bucket);
  const double share = served / static_cast<double>(stats.requests - before.requests);
  const double of_live = held_of_live(stats);
  CAPTURE(share, of_live);
  CHECK(share >= 0.99);
  CHECK(of_live <= 1.05);
}

// Of a plan that misses often idle pages serve before memory grows.
TEST_CASE("A plan that misses often spares its pages early", "[learn][target]") {
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  Allocator allocator(device, learning());
  std::mt19937 random(38);
  std::vector<void*> kept, live;
  for (int i = 0; i < 60; ++i) kept.push_back(allocator.allocate(Bytes{2} << 20, 0));
  const auto keep = [&](Bytes size) { live.push_back(allocator.allocate(size, 0)); };
  for (int step = 0; step < 60; ++step) {
    const std::size_t evaluations = 4 + random() % 11;
    for (std::size_t k = 0; k < 3 * evaluations; ++k) {
      for (const Bytes units : {1, 4, 4, 4, 1}) keep(units << 22);
      if (random() % 20 == 0) keep(Bytes{512} << 6);
      void* const scratch = allocator.allocate(Bytes{9} << 20, 0);
      allocator.free(scratch);
    }
    while (!live.empty()) {
      void* const gradient = allocator.allocate(Bytes{16} << 20, 0);
      void* const other = allocator.allocate(Bytes{4} << 20, 0);
      allocator.free(live.back());
      live.pop_back();
      allocator.free(gradient);
      allocator.free(other);
    }
    allocator.mark_step(0);
  }
  CHECK(allocator.is_valid() == "");
  const Stats stats = allocator.stats();
  const double of_live = held_of_live(stats);
  CAPTURE(of_live, stats.live_peak, stats.hits, stats.requests);
  CHECK(of_live <= 1.0015);
}

// The largest sizes of all steps together are more than any one step has.
TEST_CASE("A plan of buckets serves where the limit has room for it", "[learn][target]") {
  std::optional<Plan> learned;
  const auto run = [&](Bytes limit, const std::optional<Plan>& given = std::nullopt) {
    test::SimulatedDevice device(
        {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
    Allocator allocator(device, learning(limit));
    if (given) allocator.load_plan(*given);
    std::mt19937 random(3);
    std::vector<void*> kept, live;
    for (int i = 0; i < 80; ++i) kept.push_back(allocator.allocate(Bytes{7} << 20, 0));
    for (int step = 0; step < 60; ++step) {
      for (int batch = 0; batch < 6; ++batch) {
        const Bytes length = 64 + random() % 192;
        for (int layer = 0; layer < 12; ++layer) {
          void* const scratch = allocator.allocate(length * 5000, 0);
          live.push_back(allocator.allocate(length * 9000 + 512 * layer, 0));
          live.push_back(allocator.allocate(length * 23000, 0));
          live.push_back(allocator.allocate(Bytes{3} << 20, 0));
          allocator.free(scratch);
        }
      }
      while (!live.empty()) {
        void* const gradient = allocator.allocate(Bytes{5} << 19, 0);
        allocator.free(live.back());
        live.pop_back();
        allocator.free(gradient);
      }
      allocator.mark_step(0);
      if (!given && allocator.plan()) learned = allocator.plan();
    }
    CHECK(allocator.is_valid() == "");
    for (void* const pointer : kept) allocator.free(pointer);
    return allocator.stats();
  };
  const Bytes live = run(0).live_peak;
  const std::optional<Plan> of_free_run = learned;
  REQUIRE(of_free_run);
  REQUIRE_NOTHROW(run(live + live / 40));
  // One that is given gives way once enough lives.
  Stats given;
  REQUIRE_NOTHROW(given = run(live + live / 30, of_free_run));
  CHECK(given.plans_declined >= 1);
  CHECK(run(live + live / 12).plans_learned >= 1);
}

// Experts whose shares of the work change at each step: as many requests, of any size.
TEST_CASE("Steps of any sizes hold what lives, too", "[learn][target]") {
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  Allocator allocator(device, learning());
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
  const double of_live = held_of_live(stats);
  CAPTURE(of_live, stats.hits, stats.hits_bucket, stats.lent);
  CHECK(stats.hits_bucket > 1000);
  CHECK(of_live <= 1.05);
  for (void* const pointer : kept) allocator.free(pointer);
}

// A buffer of small blocks that grows from step to step, beside steps that a plan serves.
TEST_CASE("Small blocks that stay share pages of the arena", "[learn][target]") {
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  Allocator allocator(device, learning());
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
  const double of_live = held_of_live(stats);
  CAPTURE(of_live, stats.hits, stats.lent);
  CHECK(stats.hits > 200);
  CHECK(of_live <= 1.01);
  for (void* const pointer : kept) allocator.free(pointer);
}

// Each weight has half of a page beside it, which the pool uses and an arena cannot.
TEST_CASE("A plan that would hold more than the pool does not serve", "[learn][target]") {
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  Allocator allocator(device, learning());
  std::vector<void*> weights, live;
  for (int i = 0; i < 160; ++i) {
    weights.push_back(allocator.allocate(kPage * 3 / 2, 0));
    live.push_back(allocator.allocate(kPage / 2, 0));
  }
  for (void* const block : live) allocator.free(block);
  live.clear();
  std::uint64_t hits = 0;
  const auto train = [&](int steps) {
    for (int step = 0; step < steps; ++step) {
      hits = allocator.stats().hits;
      for (int i = 0; i < 200; ++i) live.push_back(allocator.allocate(kPage / 2, 0));
      for (; !live.empty(); live.pop_back()) allocator.free(live.back());
      allocator.mark_step(0);
    }
    return allocator.stats().hits - hits;
  };
  CHECK(train(40) == 0);
  CHECK(allocator.is_valid() == "");
  const Stats stats = allocator.stats();
  CAPTURE(held_of_live(stats));
  CHECK(stats.plans_declined > 0);
  CHECK(held_of_live(stats) <= 1.02);
  // It serves as soon as there is room.
  for (void* const block : weights) allocator.free(block);
  CHECK(train(100) == 200);
  CHECK(held_of_live(allocator.stats()) <= 1.02);
}

TEST_CASE("A plan that would hold more than the pool is kept for no other run", "[learn][target]") {
  const test::TemporaryFolder folder;
  const auto kept = [&](int weights) {
    test::SimulatedDevice device(
        {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
    Allocator::Options options = learning();
    options.config.plan = folder.path();
    Allocator allocator(device, options);
    std::vector<void*> stay, live;
    for (int i = 0; i < weights; ++i) {
      stay.push_back(allocator.allocate(kPage * 3 / 2, 0));
      live.push_back(allocator.allocate(kPage / 2, 0));
    }
    for (int step = 0; step < 10; ++step) {
      for (; !live.empty(); live.pop_back()) allocator.free(live.back());
      for (int i = 0; i < 200; ++i) live.push_back(allocator.allocate(kPage / 2, 0));
      for (; !live.empty(); live.pop_back()) allocator.free(live.back());
      allocator.mark_step(0);
    }
    for (void* const block : stay) allocator.free(block);
    CHECK((allocator.stats().plans_declined == 0) == (weights == 0));
    return std::distance(std::filesystem::directory_iterator(folder.path()), {});
  };
  CHECK(kept(160) == 0);
  CHECK(kept(0) == 1);
}

// What a step leaves to the next one is in the pool before the plan, and in its arena then.
TEST_CASE("Gradients that cross the mark do not keep a plan from serving", "[learn][target]") {
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  Allocator allocator(device, learning());
  std::vector<void*> live, gradients;
  const auto free_all = [&](std::vector<void*>& blocks) {
    for (; !blocks.empty(); blocks.pop_back()) allocator.free(blocks.back());
  };
  std::uint64_t hits = 0;
  for (int step = 0; step < 40; ++step) {
    hits = allocator.stats().hits;
    for (int i = 0; i < 100; ++i) {
      live.push_back(allocator.allocate(kPage * 3 / 2, 0));
      if (i == 10) free_all(gradients);
    }
    for (int i = 0; i < 100; ++i) {
      gradients.push_back(allocator.allocate(kPage * 3 / 2, 0));
      allocator.free(live.back());
      live.pop_back();
    }
    allocator.mark_step(0);
  }
  CHECK(allocator.stats().hits - hits == 200);
  CHECK(allocator.stats().plans_declined == 0);
  CHECK(held_of_live(allocator.stats()) <= 1.02);
  free_all(gradients);
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

// Another lane's holes are not waited for while memory may grow. Where it may not, they serve, and
// it grows by what they lack.
TEST_CASE("Past what should be held memory grows by what all that lies free lacks", "[target]") {
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  Allocator::Options options;
  options.start_threads = false;
  Allocator allocator(device, options);
  std::vector<void*> small, between;  // what lies between serves no large block
  for (int i = 0; i < 64; ++i) {
    small.push_back(allocator.allocate(kPage / 4, 1));
    between.push_back(allocator.allocate(kPage / 4, 1));
  }
  for (void* const pointer : between) allocator.free(pointer);
  void* const freed = allocator.allocate(40 * kPage, 1);
  void* const kept = allocator.allocate(64 * kPage, 1);  // no growth is beside the hole
  device.touch(1, freed, 40 * kPage);                    // the lane is not done
  allocator.free(freed);
  const Bytes before = allocator.stats().reserved;
  void* const block = allocator.allocate(48 * kPage, 2);
  CHECK(allocator.stats().reserved - before <= 8 * kPage);
  CHECK(allocator.is_valid() == "");
  for (void* const pointer : small) allocator.free(pointer);
  allocator.free(block);
  allocator.free(kept);
}

namespace {

// An allocator with a plan of 200 requests a step: a large one, small ones, one that `late` frees
// after its step's end.
class Planned {
 public:
  Planned(test::SimulatedDevice& device, int pages) : allocator_(device, learning()) {
    leave_parts(pages);
    // With parts it would not be learned.
    if (pages > 1) allocator_.load_plan(Planned(device, 1)->plan().value());
    for (int i = 0; i < 40; ++i) step();
  }
  ~Planned() {
    for (void* const pointer : parts_) allocator_.free(pointer);
  }
  Planned(const Planned&) = delete;
  Planned& operator=(const Planned&) = delete;
  Allocator& operator*() noexcept { return allocator_; }
  Allocator* operator->() noexcept { return &allocator_; }

  void step(void** kept = nullptr) {
    begin();
    void* const block = allocator_.allocate(4 * kPage, 0);
    if (kept != nullptr) *kept = block;
    small(180);
    if (kept == nullptr) allocator_.free(block);
    allocator_.mark_step(0);
  }
  // The part of a step in which the arena has most bytes.
  void begin() {
    void* const large = allocator_.allocate(32 * kPage, 0);
    small(4);
    allocator_.free(large);
  }
  void small(int count) {
    for (int i = 0; i < count; ++i) allocator_.free(allocator_.allocate(4096, 0));
  }

 private:
  // Blocks in the pool that leave as many bytes beside them on their pages.
  void leave_parts(int pages) {
    std::vector<void*> between;
    for (int i = 0; i < 2 * pages; ++i) {
      parts_.push_back(allocator_.allocate(kPage / 4, 1));
      between.push_back(allocator_.allocate(kPage / 4, 1));
    }
    for (void* const pointer : between) allocator_.free(pointer);
  }
  Allocator allocator_;
  std::vector<void*> parts_;
};

}  // namespace

TEST_CASE("Where parts of pages are many, the arena lends no bytes by itself", "[learn][target]") {
  for (const bool many : {false, true}) {
    test::SimulatedDevice device(
        {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
    Planned planned(device, many ? 40 : 1);
    REQUIRE(planned->stats().hits > 0);
    const std::uint64_t before = planned->stats().lent;
    void *late = nullptr, *other = nullptr;
    planned.step(&late);
    planned.step(&other);  // its bytes are in use
    CAPTURE(many);
    CHECK((planned->stats().lent == before) == many);
    CHECK(planned->is_valid() == "");
    planned->free(late);
    planned->free(other);
  }
}

TEST_CASE("A block below a page takes bytes of the arena before a page of it", "[learn][target]") {
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  Planned planned(device, 40);  // no more should be held
  planned.begin();
  const Stats before = planned->stats();
  void* const block = planned->allocate(kPage * 3 / 4, 0);
  REQUIRE(planned->find(block).has_value());
  CHECK(planned->find(block)->planned);
  CHECK(planned->stats().stitched == before.stitched);
  CHECK(planned->stats().reserved == before.reserved);
  CHECK(planned->is_valid() == "");
  planned->free(block);
}

namespace {

// For a plan of plan_of().
Allocator::Options serving() {
  Allocator::Options options = learning();
  options.config.mode = Mode::kOff;
  options.alignment = 64;  // the plan's
  return options;
}

}  // namespace

// A plan may lay small blocks between large ones. In a step with other large ones each would keep a
// page from them.
TEST_CASE("In a step of another kind small blocks share pages", "[learn][target]") {
  constexpr Bytes kLarge = kPage * 5 / 4, kSmall = kPage / 4;
  constexpr std::uint32_t kGroups = 26, kGroup = 6;
  std::vector<test::SlotSpec> slots;
  for (std::uint32_t group = 0; group < kGroups; ++group) {
    for (const bool small : {false, true}) {
      for (std::uint32_t i = group * kGroup; i < (group + 1) * kGroup; ++i) {
        const auto length = static_cast<std::uint32_t>(2 * kGroups * kGroup - slots.size());
        slots.push_back({(kLarge + kSmall) * i + (small ? kLarge : 0),
                         (small ? kSmall : kLarge) - 512 * i, length});
      }
    }
  }
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  Allocator allocator(device, serving());
  allocator.load_plan(test::plan_of({test::sequence_of(slots)}));
  std::vector<void*> live;
  const auto block = [&](Bytes size) { live.push_back(allocator.allocate(size, 0)); };
  const auto end = [&] {
    for (; !live.empty(); live.pop_back()) allocator.free(live.back());
    allocator.mark_step(0);
  };
  for (int i = 0; i < 4; ++i) {
    for (const test::SlotSpec& slot : slots) block(slot.size);
    end();
  }
  const std::uint64_t hits = allocator.stats().hits;
  CHECK(hits >= 2 * slots.size());
  // Its small blocks, and others in place of its large ones.
  for (std::uint32_t group = 0; group < kGroups; ++group) {
    for (Bytes i = 1; i <= kGroup; ++i) allocator.free(allocator.allocate(kPage + 64 * i, 0));
    for (std::uint32_t i = group * kGroup; i < (group + 1) * kGroup; ++i) block(kSmall - 512 * i);
  }
  CHECK(allocator.stats().hits >= hits + 4 * kGroup);
  for (Bytes i = 0; i < 62; ++i) block(3 * kPage - 512 * i);
  end();
  CHECK(allocator.is_valid() == "");
  CHECK(held_of_live(allocator.stats()) <= 1.08);
}

// What lives on may lie on many slots. The step is the plan's all the same, and neighbours will
// come to live beside its small blocks.
TEST_CASE("In the plan's own step small blocks stay at their places", "[learn][target]") {
  constexpr Bytes kShort = 64 * kPage, kSmall = kPage / 4, kLarge = kPage * 3 / 2;
  constexpr std::uint32_t kShorts = 40, kPairs = 16;
  std::vector<test::SlotSpec> slots;
  for (std::uint32_t i = 0; i < kShorts; ++i) slots.push_back({0, kShort, 1});
  for (std::uint32_t i = 0; i < kPairs; ++i)
    slots.push_back({kShort + 2 * kPage * i, kSmall, 2 * kPairs - i});
  for (std::uint32_t i = 0; i < kPairs; ++i)
    slots.push_back({kShort + 2 * kPage * i + kSmall, kLarge, kPairs - i});
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  Allocator allocator(device, serving());
  allocator.load_plan(test::plan_of({test::sequence_of(slots)}));
  void* in_the_way = nullptr;
  const auto step = [&](bool leaves_one) {
    for (std::uint32_t i = 0; i < kShorts; ++i) {
      void* const one = allocator.allocate(kShort, 0);
      if (leaves_one && i + 1 == kShorts)
        in_the_way = one;
      else
        allocator.free(one);
    }
    std::vector<void*> live;
    for (std::uint32_t i = 0; i < 2 * kPairs; ++i)
      live.push_back(allocator.allocate(i < kPairs ? kSmall : kLarge, 0));
    for (void* const one : live) allocator.free(one);
    allocator.mark_step(0);
  };
  step(false);  // begins at no mark
  step(true);
  const std::uint64_t before = allocator.stats().hits;
  step(false);
  CHECK(allocator.stats().hits - before == 2 * kPairs);
  allocator.free(in_the_way);
  CHECK(allocator.is_valid() == "");
}

// Blocks of no whole pages, of which each step keeps others until its end: what the holes between
// them leave in parts of pages serves no large block, and one comes at the peak of each step.
TEST_CASE("Medium blocks leave pages to large ones", "[learn][target]") {
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = kPage, .maps_pages = true});
  Allocator::Options options;
  options.alignment = 512;
  options.start_threads = false;
  Allocator allocator(device, options);
  std::mt19937 random(11);
  std::vector<void*> kept, live;
  for (int step = 0; step < 30; ++step) {
    const Bytes length = 256 + 128 * (random() % 4);
    for (int layer = 0; layer < 30; ++layer) {
      void* const scratch = allocator.allocate(length * 19456, 0);
      for (const Bytes width : {3584, 9728, 3584})
        if (random() % 4 != 0) live.push_back(allocator.allocate(length * width * 2, 0));
      allocator.free(scratch);
    }
    void* const large = allocator.allocate(length * 192000, 0);
    if (step == 0)
      for (int i = 0; i < 90; ++i)
        kept.push_back(allocator.allocate(i % 3 == 0 ? 8716288 : 3211264, 0));
    allocator.free(large);
    std::vector<void*> gradients;
    while (!live.empty()) {
      allocator.free(live.back());
      live.pop_back();
      gradients.push_back(allocator.allocate(random() % 2 == 0 ? 8716288 : 3211264, 0));
    }
    for (void* const pointer : gradients) allocator.free(pointer);
  }
  CHECK(allocator.is_valid() == "");
  const Stats stats = allocator.stats();
  const double of_live = held_of_live(stats);
  CAPTURE(of_live);
  CHECK(of_live <= 1.003);
  for (void* const pointer : kept) allocator.free(pointer);
}
