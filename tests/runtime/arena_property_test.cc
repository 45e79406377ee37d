// Random plans under random programs: whatever the program does, live blocks share no byte.

#include "csrc/device/host_device.h"
#include "csrc/plan/verify.h"
#include "csrc/runtime/arena.h"
#include "tests/catch.h"
#include "tests/support/lone_arena.h"
#include "tests/support/random_kinds.h"
#include "tests/support/random_plan.h"
#include "tests/support/simulated_device.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>

using namespace berth;

namespace {

// Every live block by address; insertion fails where one would share a byte with another.
class Ledger {
 public:
  bool add(void* pointer, Bytes size) {
    const auto first = reinterpret_cast<Bytes>(pointer);
    return blocks_.insert({first, first + size}, pointer);
  }
  void remove(void* pointer) { blocks_.erase(reinterpret_cast<Bytes>(pointer)); }

 private:
  IntervalMap<void*> blocks_;
};

struct Held {
  void* pointer = nullptr;
  std::uint64_t until = 0;
};

}  // namespace

TEST_CASE(
    "No two live blocks share a byte under late frees and jumps and early marks and new plans",
    "[arena][property]") {
  std::uint64_t hand_outs = 0, lent = 0, busy = 0, sizes = 0;
  for (unsigned seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    // Longer steps, too: what is lent is lent for a part of them.
    const std::uint32_t count = seed % 5 == 0 ? 300 : 60;
    Plan plan = test::random_plan(count, 8, random);
    REQUIRE(verify(plan) == std::nullopt);
    const auto device = make_host_device(Bytes{1} << 30);
    test::LoneArena arena(*device, 64);
    REQUIRE(arena.activate(std::make_shared<const PlanLookup>(plan), Arena::Pages::kNow).ok());
    arena.mark(0);
    Ledger ledger;
    std::multimap<std::uint64_t, void*> held;  // by the request at which the program frees it
    std::uint32_t next = 0;
    for (std::uint64_t now = 0; now < 2500; ++now) {
      while (!held.empty() && held.begin()->first <= now) {
        void* pointer = held.begin()->second;
        REQUIRE(arena.free(pointer).found);
        ledger.remove(pointer);
        held.erase(held.begin());
      }
      const unsigned event = random() % 400;
      if (event < 4) {
        arena.mark(0);
        next = event < 2 ? 0 : next;
      } else if (event < 8) {
        next = random() % count;  // skips ahead or falls back
      } else if (event == 8) {
        plan = test::random_plan(count, 8, random);
        REQUIRE(arena.activate(std::make_shared<const PlanLookup>(plan), Arena::Pages::kNow).ok());
        arena.mark(0);
        next = 0;
      }
      const Slot& slot = plan.sequences[0].slots[next];
      Bytes size = slot.requested;
      if (event >= 390) size = 1 + random() % 600;  // resized or inserted
      if (event < 395) next = (next + 1) % count;
      const Arena::Outcome outcome = arena.allocate(size, 0, now + 1);
      busy += outcome.served == Served::kMissBusy;
      sizes += outcome.served == Served::kMissSize;
      lent += outcome.served == Served::kLent;
      REQUIRE((outcome.pointer != nullptr) ==
              (outcome.served == Served::kHit || outcome.served == Served::kLent));
      if (outcome.pointer != nullptr) {
        ++hand_outs;
        REQUIRE(outcome.size >= size);
        REQUIRE(ledger.add(outcome.pointer, outcome.size));
        const std::uint64_t overstay = random() % 20 == 0 ? random() % 100 : 0;
        held.emplace(now + slot.length + overstay, outcome.pointer);
      }
      if (now % 50 == 0) REQUIRE(arena.is_valid() == "");
    }
  }
  // The program diverges all the time; most is served all the same.
  REQUIRE(hand_outs > 150000);
  REQUIRE(lent > 1000);
  REQUIRE(busy > 1000);
  REQUIRE(sizes > 100);
}

TEST_CASE("No two live blocks share a byte where kinds of steps come in random turns",
          "[arena][property][kinds]") {
  std::uint64_t hits = 0, buckets = 0, others = 0;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const std::vector<StepKind> kinds = test::random_kinds(random, seed % 2 == 0);
    const auto device = make_host_device(Bytes{1} << 30);
    test::LoneArena arena(*device, 64);
    REQUIRE(
        arena.activate(std::make_shared<const PlanLookup>(test::planned(kinds)), Arena::Pages::kNow)
            .ok());
    arena.mark(0);
    Ledger ledger;
    std::multimap<std::uint64_t, void*> held;  // by the request at which the program frees it
    std::uint64_t now = 0;
    for (int step = 0; step < 40; ++step) {
      const StepKind& kind = kinds[random() % kinds.size()];
      const bool cut = random() % 20 == 0, unmarked = random() % 20 == 0;
      const std::size_t count = cut ? random() % kind.requests.size() : kind.requests.size();
      for (std::size_t k = 0; k < count; ++k, ++now) {
        while (!held.empty() && held.begin()->first <= now) {
          REQUIRE(arena.free(held.begin()->second).found);
          ledger.remove(held.begin()->second);
          held.erase(held.begin());
        }
        const StepKind::Request& request = kind.requests[k];
        const bool changed = random() % 100 == 0;
        const Bytes least = request.least + random() % (request.bytes - request.least + 1);
        const Bytes size = changed ? 1 + random() % 9000 : least;
        const Arena::Outcome outcome = arena.allocate(size, 0, now + 1);
        hits += outcome.served == Served::kHit;
        buckets += outcome.served == Served::kBucket;
        others += outcome.served != Served::kHit;
        if (outcome.pointer == nullptr) continue;
        REQUIRE(ledger.add(outcome.pointer, outcome.size));
        const std::uint64_t more = request.outlives ? request.wrapped + random() % 40 : 0;
        const std::uint64_t overstay = random() % 20 == 0 ? random() % 60 : 0;
        held.emplace(now + std::max(1u, request.length) + more + overstay, outcome.pointer);
      }
      if (!unmarked) arena.mark(0);
      REQUIRE(arena.is_valid() == "");
    }
  }
  CAPTURE(hits, buckets, others);
  REQUIRE(hits > 20000);
  REQUIRE(buckets > 5000);
  REQUIRE(hits + buckets > others - buckets);
}

namespace {

// Steps of a plan with steps of another kind in between, whose requests find the arena at rest.
struct OtherSteps {
  static constexpr Bytes kScale = Bytes{1} << 14;  // so that the idle arena is lent

  test::LoneArena& arena;
  Arena::Pages pages;
  std::uint64_t hits = 0, lent = 0, lent_idle = 0;

  static Plan make_plan(std::uint32_t count, std::mt19937& random) {
    Plan plan = test::random_plan(count, 8, random);
    plan.arena_bytes = 0;
    for (Slot& slot : plan.sequences[0].slots) {
      slot.offset *= kScale;
      slot.requested *= kScale;
      slot.size = slot.requested;
      plan.arena_bytes = std::max(plan.arena_bytes, slot.offset + slot.size);
    }
    REQUIRE(verify(plan) == std::nullopt);
    return plan;
  }

  // `before_each(ledger, now)` is called before each request.
  void run(std::uint32_t count, std::uint64_t requests, std::mt19937& random,
           const std::function<void(Ledger&, std::uint64_t)>& before_each) {
    Plan plan;
    const auto change_plan = [&] {
      plan = make_plan(count, random);
      REQUIRE(arena.activate(std::make_shared<const PlanLookup>(plan), pages).ok());
      arena.mark(0);
    };
    change_plan();
    Ledger ledger;
    std::multimap<std::uint64_t, void*> held;
    std::uint32_t next = 0, other = 0;  // requests of another kind that are still to come
    for (std::uint64_t now = 0; now < requests; ++now) {
      while (!held.empty() && held.begin()->first <= now) {
        void* pointer = held.begin()->second;
        REQUIRE(arena.free(pointer).found);
        ledger.remove(pointer);
        held.erase(held.begin());
      }
      before_each(ledger, now);
      if (next == 0 && other == 0 && random() % 4 == 0) other = 40 + random() % 100;
      if (random() % 1000 == 0) {
        change_plan();
        next = 0;
      }
      const bool of_plan = other == 0;
      const Slot& slot = plan.sequences[0].slots[next];
      const Bytes size = of_plan ? slot.requested : (1 + random() % 600) * kScale;
      const std::uint32_t length = of_plan ? slot.length : 1 + random() % 30;
      const Arena::Outcome outcome = arena.allocate(size, 0, now + 1);
      hits += outcome.served == Served::kHit;
      lent += outcome.served == Served::kLent;
      lent_idle += !of_plan && outcome.served == Served::kLent;
      if (outcome.pointer != nullptr) {
        REQUIRE(ledger.add(outcome.pointer, outcome.size));
        const std::uint64_t overstay = random() % 20 == 0 ? random() % 100 : 0;
        held.emplace(now + length + overstay, outcome.pointer);
      }
      if (now % 20 == 0) REQUIRE(arena.is_valid() == "");
      if (of_plan) {
        next = (next + 1) % count;
        if (next == 0 && random() % 10 != 0) arena.mark(0);
      } else if (--other == 0 && random() % 4 != 0) {
        arena.mark(0);
      }
    }
  }
};

// Has no pages, and says at random whether the device may be asked for some.
struct Fickle final : PageSource {
  std::mt19937& random;
  explicit Fickle(std::mt19937& one) : random(one) {}
  std::size_t move_pages(void*, std::size_t, std::size_t, LaneKey, bool) noexcept override {
    return 0;
  }
  Bytes trim() noexcept override { return 0; }
  bool may_grow(Bytes, Bytes) noexcept override { return random() % 2 == 0; }
  bool let_go_of(ByteRange) noexcept override { return true; }
};

}  // namespace

TEST_CASE("No two live blocks share a byte where steps of another kind come in between",
          "[arena][property]") {
  std::uint64_t hits = 0, lent = 0, lent_idle = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto device = make_host_device(Bytes{1} << 40);
    test::LoneArena arena(*device, 64);
    OtherSteps steps{.arena = arena, .pages = Arena::Pages::kNow};
    steps.run(seed % 5 == 0 ? 300 : 60, 3000, random, [](Ledger&, std::uint64_t) {});
    hits += steps.hits;
    lent += steps.lent;
    lent_idle += steps.lent_idle;
  }
  REQUIRE(hits > 20000);
  REQUIRE(lent > 1000);
  REQUIRE(lent_idle > 1000);
}

TEST_CASE("No two live blocks share a byte where pages come one by one, go, and are lent",
          "[arena][property][filling]") {
  std::uint64_t hits = 0, lent = 0, lent_idle = 0, filled = 0, gone = 0, spared = 0, pages = 0;
  for (unsigned seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed), events(seed + 1000);
    test::SimulatedDevice device({.total_bytes = Bytes{1} << 31, .page_bytes = Bytes{1} << 16});
    Fickle source(events);
    test::LoneArena arena(device, 64, &source);
    OtherSteps steps{.arena = arena, .pages = Arena::Pages::kAsUsed};
    std::multimap<std::uint64_t, void*> held;   // what was lent by lend_spare()
    std::multimap<std::uint64_t, Bytes> taken;  // pages, by lend()
    steps.run(60, 1500, random, [&](Ledger& ledger, std::uint64_t now) {
      while (!held.empty() && held.begin()->first <= now) {
        REQUIRE(arena.free(held.begin()->second).found);
        ledger.remove(held.begin()->second);
        held.erase(held.begin());
      }
      while (!taken.empty() && taken.begin()->first <= now) {
        arena.take_back(taken.begin()->second);
        ledger.remove(reinterpret_cast<void*>(taken.begin()->second));
        taken.erase(taken.begin());
      }
      const unsigned event = events() % 100;
      if (event < 4) filled += arena.fill(events() % 2 == 0) ? 1 : 0;
      if (event == 4) gone += arena.give_back();
      if (event == 5) gone += arena.give_back_leftover();
      const auto spare = static_cast<PageLender::Spare>(events() % 5);
      if (event >= 6 && event < 12) {
        const Arena::Outcome outcome =
            arena.lend_spare({spare}, (1 + events() % 400) * OtherSteps::kScale / 4, 0,
                             1'000'000 + now, event % 2 == 0 ? Arena::kMostLeft : 1 << 16);
        if (outcome.pointer != nullptr) {
          ++spared;
          REQUIRE(ledger.add(outcome.pointer, outcome.size));
          held.emplace(now + 1 + events() % 60, outcome.pointer);
        }
      }
      if (event >= 12 && event < 15) {
        std::vector<ByteRange> free;
        arena.offer(spare, &free);
        if (free.empty()) return;
        const ByteRange bytes = free[events() % free.size()];
        if (!arena.lend(0, bytes)) return;
        ++pages;
        REQUIRE(ledger.add(reinterpret_cast<void*>(bytes.first), bytes.size()));
        taken.emplace(now + 1 + events() % 60, bytes.first);
      }
    });
    for (const auto& [until, pointer] : held) REQUIRE(arena.free(pointer).found);
    for (const auto& [until, first] : taken) arena.take_back(first);
    REQUIRE(arena.is_valid() == "");
    hits += steps.hits;
    lent += steps.lent;
    lent_idle += steps.lent_idle;
  }
  CAPTURE(hits, lent, lent_idle, filled, gone, spared, pages);
  REQUIRE(hits > 50000);
  REQUIRE(lent > 15000);
  REQUIRE(lent_idle > 15000);
  REQUIRE(filled > 3000);
  REQUIRE(gone > 0);
  REQUIRE(spared > 3000);
  REQUIRE(pages > 3000);
}

TEST_CASE("One inserted or removed or resized or swapped request costs a handful of misses",
          "[arena][divergence]") {
  // A step as models make them: layers alike, sizes repeated.
  std::mt19937 random(7);
  Plan plan;
  plan.lane_keys = {0};
  Sequence sequence;
  const std::vector<Bytes> layer = {4096, 4096, 16384, 512,  16384, 4096,
                                    64,   64,   8192,  4096, 16384, 512};
  for (int repeat = 0; repeat < 12; ++repeat) {
    for (const Bytes size : layer) {
      Slot slot;
      slot.birth = static_cast<std::uint32_t>(sequence.slots.size());
      slot.size = slot.requested = size;
      slot.length = 1 + random() % 10;
      sequence.slots.push_back(slot);
    }
  }
  sequence.period = static_cast<std::uint32_t>(sequence.slots.size());
  sequence.marks = {0};
  plan.arena_bytes = test::place_first_fit(sequence.slots, sequence.period, 0, random);
  plan.sequences = {sequence};
  REQUIRE(verify(plan) == std::nullopt);
  const auto lookup = std::make_shared<const PlanLookup>(plan);

  enum class Change { kInsert, kRemove, kResize, kSwap };
  for (const Change change : {Change::kInsert, Change::kRemove, Change::kResize, Change::kSwap}) {
    std::uint64_t total = 0, worst = 0;
    for (std::uint32_t at = 0; at < sequence.period; ++at) {
      const auto device = make_host_device(Bytes{1} << 30);
      test::LoneArena arena(*device, 64);
      REQUIRE(arena.activate(lookup, Arena::Pages::kNow).ok());
      arena.mark(0);
      std::vector<std::pair<Bytes, std::uint32_t>> requests;  // size, length
      for (const Slot& slot : sequence.slots) requests.emplace_back(slot.requested, slot.length);
      const auto position = requests.begin() + at;
      switch (change) {
        case Change::kInsert:
          requests.insert(position, {at % 2 == 0 ? Bytes{777} : layer[at % layer.size()], 3});
          break;
        case Change::kRemove:
          requests.erase(position);
          break;
        case Change::kResize:
          position->first += 64;
          break;
        case Change::kSwap:
          if (at + 1 < sequence.period) std::swap(*position, *(position + 1));
          break;
      }
      std::multimap<std::size_t, void*> held;
      std::uint64_t misses = 0;
      for (int step = 0; step < 2; ++step) {
        for (std::size_t i = 0; i < requests.size(); ++i) {
          const std::size_t now = static_cast<std::size_t>(step) * requests.size() + i;
          while (!held.empty() && held.begin()->first <= now) {
            REQUIRE(arena.free(held.begin()->second).found);
            held.erase(held.begin());
          }
          const Arena::Outcome outcome = arena.allocate(requests[i].first, 0, 0);
          if (outcome.pointer != nullptr) {
            held.emplace(now + requests[i].second, outcome.pointer);
          } else {
            ++misses;
          }
        }
        arena.mark(0);
      }
      total += misses;
      worst = std::max(worst, misses);
    }
    CAPTURE(static_cast<int>(change), worst, total);
    // Two steps with the change in each.
    CHECK(static_cast<double>(total) / sequence.period / 2 <= 5.0);
    CHECK(worst <= 2 * 20);
  }
}
