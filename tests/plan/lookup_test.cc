#include "csrc/plan/lookup.h"

#include "tests/catch.h"
#include "tests/plan/plans.h"

#include <berth/error.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <vector>

using namespace berth;
using namespace berth::test;

namespace {

std::vector<std::uint32_t> list(std::span<const std::uint32_t> of) {
  return {of.begin(), of.end()};
}

// Any well-formed plan: slots may overlap, which a lookup does not mind.
Plan random_plan(std::mt19937& random) {
  const auto below = [&](std::uint32_t limit) {
    return static_cast<std::uint32_t>(random() % limit);
  };
  Plan plan;
  const std::uint32_t lanes = 1 + below(3);
  std::vector<Sequence> sequences;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    const std::uint32_t period = 1 + below(12);
    const std::uint32_t branches = below(3);
    const auto first = static_cast<std::int32_t>(sequences.size());
    for (std::uint32_t b = 0; b <= branches; ++b) {
      // All paths of a lane have one period here, so every length is legal.
      const std::uint32_t fork = b == 0 ? 0 : below(period);
      std::vector<Place> places;
      for (std::uint32_t tick = fork; tick < period; ++tick) {
        const bool planned = below(5) != 0;
        places.push_back(
            {planned ? 64 * below(40) : Slot::kUnplanned, 1 + 50 * below(4), 1 + below(period)});
      }
      sequences.push_back(b == 0 ? sequence(lane, places) : branch(lane, first, fork, places));
    }
  }
  return plan_of(std::move(sequences));
}

}  // namespace

TEST_CASE("A lookup numbers slots sequence by sequence and gives each its cell", "[plan][lookup]") {
  const PlanLookup lookup(plan_of({sequence(0, {{0, 100, 2}, {128, 10, 1}, {0, 64, 1}}),
                                   branch(0, 0, 1, {{128, 30, 1}, {Slot::kUnplanned, 7, 0}})}));
  REQUIRE(lookup.slot_count() == 5);
  REQUIRE(lookup.first_slot(1) == 3);
  REQUIRE(lookup.sequence_of(2) == 0);
  REQUIRE(lookup.sequence_of(3) == 1);
  REQUIRE(lookup.cell_count() == 2);
  REQUIRE(lookup.entry(0).cell == lookup.entry(2).cell);
  REQUIRE(lookup.entry(1).cell == lookup.entry(3).cell);
  REQUIRE(lookup.entry(4).cell == PlanLookup::kNone);
  REQUIRE(lookup.entry(3).birth == 1);
  REQUIRE(lookup.slot(3).requested == 30);
  REQUIRE(lookup.cell_at(128) == lookup.entry(1).cell);
  REQUIRE(lookup.cell_at(64) == PlanLookup::kNone);
  REQUIRE(lookup.cell_at(1) == PlanLookup::kNone);
  REQUIRE(lookup.cell_at(Slot::kUnplanned) == PlanLookup::kNone);
}

TEST_CASE("A lifetime ends at its last tick, and around the end of the step", "[plan][lookup]") {
  const PlanLookup lookup(plan_of(
      {sequence(0, {{0, 64, 1}, {64, 64, 2}, {128, 64, 2}}), branch(0, 0, 2, {{192, 64, 2}})}));
  REQUIRE(list(lookup.ends_at(0, 1)) == std::vector<std::uint32_t>{0, 2});
  REQUIRE(list(lookup.ends_at(0, 0)) == std::vector<std::uint32_t>{1});
  REQUIRE(lookup.ends_at(0, 2).empty());
  REQUIRE(list(lookup.ends_at(1, 1)) == std::vector<std::uint32_t>{3});
  REQUIRE(lookup.ends_at(1, 0).empty());
  REQUIRE(lookup.ends_at(1, 2).empty());
  REQUIRE(lookup.ends_at(1, 3).empty());
}

TEST_CASE("A window of sizes is found wherever a path holds it", "[plan][lookup]") {
  const Bytes none = Slot::kUnplanned;
  const PlanLookup lookup(plan_of({sequence(0, {{none, 1, 0},
                                                {none, 2, 0},
                                                {none, 1, 0},
                                                {none, 2, 0},
                                                {none, 1, 0},
                                                {none, 2, 0},
                                                {none, 3, 0}}),
                                   branch(0, 0, 3, {{none, 9, 0}})}));
  const std::array<Bytes, 4> alternating = {1, 2, 1, 2}, around = {2, 3, 1, 2},
                             to_end = {2, 1, 2, 3}, branched = {1, 2, 1, 9};
  REQUIRE(list(lookup.positions_after(0, alternating)) == std::vector<std::uint32_t>{4, 6});
  REQUIRE(list(lookup.positions_after(0, around)) == std::vector<std::uint32_t>{2});
  REQUIRE(list(lookup.positions_after(0, to_end)) == std::vector<std::uint32_t>{0});
  REQUIRE(lookup.positions_after(0, branched).empty());
  REQUIRE(list(lookup.positions_after(1, branched)) == std::vector<std::uint32_t>{0});
}

TEST_CASE("A slot is shared where another lane has some of its bytes", "[plan][lookup]") {
  const PlanLookup lookup(plan_of({sequence(0, {{0, 64, 1}, {128, 640, 1}, {1024, 64, 1}}),
                                   sequence(1, {{64, 64, 1}, {256, 64, 1}})}));
  std::vector<std::uint32_t> shared;
  for (std::uint32_t i = 0; i < 5; ++i) shared.push_back(lookup.entry(i).shared);
  REQUIRE(shared == std::vector<std::uint32_t>{0, 1, 0, 0, 1});
}

TEST_CASE("A malformed plan is refused before any table is made", "[plan][lookup]") {
  Plan plan = plan_of({sequence(0, {{0, 64, 1}})});
  plan.sequences[0].slots[0].birth = 7;
  REQUIRE_THROWS_WITH(PlanLookup(plan),
                      "a malformed plan: slot 0 of sequence 0 is born at tick 7, its place is 0");
}

TEST_CASE("An empty plan has a lookup", "[plan][lookup]") {
  const PlanLookup lookup{Plan{}};
  REQUIRE(lookup.slot_count() == 0);
  REQUIRE(lookup.cell_at(0) == PlanLookup::kNone);
}

TEST_CASE("Every table of random plans says what a search of the slots says", "[plan][lookup]") {
  const unsigned seed = 20240601;
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 1000; ++round) {
    const Plan plan = random_plan(random);
    const PlanLookup lookup(plan);
    CAPTURE(round);
    std::set<Bytes> offsets;
    for (const Sequence& of : plan.sequences) {
      for (const Slot& slot : of.slots) {
        if (slot.planned()) offsets.insert(slot.offset);
      }
    }
    REQUIRE(lookup.cell_count() == offsets.size());
    for (Bytes offset = 0; offset < 64 * 44; offset += 32) {
      const PlanLookup::CellIndex cell = lookup.cell_at(offset);
      REQUIRE((cell != PlanLookup::kNone) == (offsets.count(offset) != 0));
      if (cell != PlanLookup::kNone) REQUIRE(lookup.cell_offset(cell) == offset);
    }
    std::uint32_t index = 0;
    for (std::uint32_t s = 0; s < plan.sequences.size(); ++s) {
      const Sequence& own = plan.sequences[s];
      std::map<std::uint32_t, std::vector<std::uint32_t>> ends;
      for (const Slot& slot : own.slots) {
        const PlanLookup::Entry& entry = lookup.entry(index);
        REQUIRE(lookup.slot(index) == slot);
        REQUIRE(entry.offset == slot.offset);
        REQUIRE(entry.requested == slot.requested);
        REQUIRE((entry.cell == PlanLookup::kNone) == !slot.planned());
        if (slot.planned()) {
          REQUIRE(lookup.cell_offset(entry.cell) == slot.offset);
          ends[(slot.birth + slot.length) % own.period].push_back(index);
        }
        bool shared = false;
        for (const Sequence& of : plan.sequences) {
          for (const Slot& other : of.slots) {
            shared |= of.lane != own.lane && slot.planned() && other.planned() &&
                      slot.offset < other.offset + other.size &&
                      other.offset < slot.offset + slot.size;
          }
        }
        REQUIRE(entry.shared == (shared ? 1 : 0));
        ++index;
      }
      for (std::uint32_t tick = 0; tick < own.period; ++tick) {
        REQUIRE(list(lookup.ends_at(s, tick)) == ends[tick]);
      }
    }
    REQUIRE(lookup.first_slot(static_cast<std::uint32_t>(plan.sequences.size())) == index);
  }
}

TEST_CASE("What a plan has alive at a tick is found by a look at about as many slots", "[lookup]") {
  std::mt19937 random(11);
  constexpr std::uint32_t kSlots = 20000;
  for (const std::uint32_t longest : {4u, 300u, kSlots}) {
    Plan plan;
    plan.lane_keys = {0};
    plan.arena_bytes = 64 * kSlots;
    Sequence sequence;
    sequence.period = kSlots;
    for (std::uint32_t i = 0; i < kSlots; ++i)
      sequence.slots.push_back({.offset = i % 5 == 0 ? Slot::kUnplanned : 64 * Bytes{i},
                                .requested = 64,
                                .size = 64,
                                .birth = i,
                                .length = 1 + static_cast<std::uint32_t>(random() % longest)});
    plan.sequences = {sequence};
    const PlanLookup lookup(plan);
    for (int look = 0; look < 200; ++look) {
      const std::uint32_t tick = random() % kSlots;
      std::set<std::uint32_t> alive, visited;
      std::size_t visits = 0;
      for (std::uint32_t i = 0; i < kSlots; ++i) {
        const std::uint32_t age = (tick + kSlots - i) % kSlots;
        if (sequence.slots[i].planned() && age < sequence.slots[i].length) alive.insert(i);
      }
      lookup.visit_alive(0, tick, [&](std::uint32_t slot) {
        visited.insert(slot);
        ++visits;
      });
      REQUIRE(std::includes(visited.begin(), visited.end(), alive.begin(), alive.end()));
      REQUIRE(visits <= 128 + 4 * alive.size());
    }
  }
}
