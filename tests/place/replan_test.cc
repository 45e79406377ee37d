#include "csrc/place/replan.h"

#include "tests/catch.h"
#include "tests/support/placement_check.h"

#include <berth/error.h>
#include <berth/place.h>

#include <algorithm>
#include <random>
#include <string>

using namespace berth;
using berth::test::check_placement;
using Catch::Matchers::Contains;

namespace {

Problem random_problem(std::mt19937_64& random, std::size_t count, std::uint64_t period) {
  Problem problem;
  problem.lanes[0].period = period;
  for (std::size_t i = 0; i < count; ++i) {
    problem.buffers.push_back({.size = 1 + random() % 64,
                               .birth = random() % (period == 0 ? count : period),
                               .length = 1 + random() % (period == 0 ? 30 : period)});
  }
  return problem;
}

PlaceOptions quick() { return {.iteration_budget = 20}; }

// Two buffers side by side for ten ticks, then one more that comes when they are gone.
Problem three() {
  return {.buffers = {{.size = 4, .birth = 0, .length = 10},
                      {.size = 4, .birth = 0, .length = 10},
                      {.size = 8, .birth = 10, .length = 10}}};
}

}  // namespace

TEST_CASE("What did not change keeps its place", "[place][replan]") {
  const Problem before = three();
  const std::vector<Bytes> offsets = {4, 0, 0};
  const Replanned same = replan(before, {before, offsets});
  REQUIRE(same.placement.offsets == offsets);
  REQUIRE(same.changed == 0);
  REQUIRE(same.moved == 0);
  REQUIRE(same.placement.proven_optimal);
}

TEST_CASE("What shrank stays and what grew takes a hole", "[place][replan]") {
  const Problem before = three();
  Problem after = before;
  after.buffers[1].size = 2;
  after.buffers[2].size = 9;
  const Replanned replanned = replan(after, {before, {4, 0, 0}}, {.capacity = 10});
  REQUIRE(check_placement(after, replanned.placement).value_or("") == "");
  REQUIRE(replanned.placement.offsets == std::vector<Bytes>{4, 0, 0});
  REQUIRE(replanned.changed == 1);
  REQUIRE(replanned.moved == 0);
  REQUIRE(replanned.placement.engine == "replan holes");
}

TEST_CASE("A buffer that finds no hole makes as few others move as will do", "[place][replan]") {
  // 0 and 1 leave 3 bytes above and 1 between them. To grow by 3 buffer 0 needs 1 to move up.
  const Problem before{.buffers = {{.size = 4, .birth = 0, .length = 10},
                                   {.size = 4, .birth = 0, .length = 10},
                                   {.size = 2, .birth = 20, .length = 1}}};
  Problem after = before;
  after.buffers[0].size = 7;
  const Replanned replanned = replan(after, {before, {0, 5, 0}}, {.capacity = 12});
  REQUIRE(check_placement(after, replanned.placement).value_or("") == "");
  REQUIRE(replanned.placement.high_water_mark <= 12);
  REQUIRE(replanned.moved == 1);
  REQUIRE(replanned.placement.engine == "replan radius 1");
}

TEST_CASE("What is pinned never moves to make room", "[place][replan][pin]") {
  const Problem before{
      .buffers = {{.size = 4, .birth = 0, .length = 10}, {.size = 4, .birth = 0, .length = 10}}};
  Problem after = before;
  after.buffers[0].size = 7;
  after.buffers[1].pinned = 5;
  const Replanned replanned =
      replan(after, {before, {0, 5}}, {.iteration_budget = 5, .capacity = 12});
  REQUIRE(check_placement(after, replanned.placement).value_or("") == "");
  REQUIRE(replanned.placement.offsets == std::vector<Bytes>{9, 5});
}

TEST_CASE("What a new pin displaces moves away", "[place][replan][pin]") {
  const Problem before = three();
  Problem after = before;
  after.buffers[0].pinned = 0;
  const Replanned replanned = replan(after, {before, {4, 0, 0}});
  REQUIRE(check_placement(after, replanned.placement).value_or("") == "");
  REQUIRE(replanned.placement.offsets == std::vector<Bytes>{0, 4, 0});
  REQUIRE(replanned.placement.high_water_mark == 8);
  REQUIRE(replanned.moved == 2);
}

TEST_CASE("Pins that collide are refused with both of them", "[place][replan][pin]") {
  const Problem before = three();
  Problem after = before;
  after.buffers[0].pinned = 0;
  after.buffers[1].pinned = 2;
  REQUIRE_THROWS_WITH(replan(after, {before, {4, 0, 0}}), Contains("buffers 0 and 1 are alive"));
}

TEST_CASE("Where single moves do not do everything is planned anew", "[place][replan]") {
  // Every byte is taken and the holes are too small; only another order fits.
  const Problem before = three();
  Problem after = before;
  after.buffers[0].size = 40;
  after.buffers[2].size = 48;
  const Replanned replanned = replan(after, {before, {4, 0, 0}}, {.capacity = 43});
  REQUIRE(check_placement(after, replanned.placement).value_or("") == "");
  REQUIRE(replanned.placement.high_water_mark == 48);
  REQUIRE(replanned.placement.proven_infeasible);
}

TEST_CASE("New buffers take holes and those that are gone leave them", "[place][replan]") {
  const Problem before = three();
  const Problem after{
      .buffers = {before.buffers[2], {.size = 3, .birth = 2, .length = 4}, before.buffers[0]}};
  const Replanned replanned = replan(after, {before, {4, 0, 0}, {2, PlacedBefore::kNew, 0}});
  REQUIRE(check_placement(after, replanned.placement).value_or("") == "");
  REQUIRE(replanned.placement.offsets == std::vector<Bytes>{0, 0, 4});
  REQUIRE(replanned.changed == 1);
}

TEST_CASE("Another alignment or other lanes make everything new", "[place][replan]") {
  const Problem before = three();
  Problem after = before;
  SECTION("alignment") { after.alignment = 16; }
  SECTION("period") { after.lanes[0].period = 20; }
  SECTION("lanes") {
    after.lanes.resize(2);
    after.buffers[2].lane = 1;
  }
  const Replanned replanned = replan(after, {before, {4, 0, 0}});
  REQUIRE(check_placement(after, replanned.placement).value_or("") == "");
  REQUIRE(replanned.changed == 3);
}

TEST_CASE("An earlier placement that does not go with the problem is refused",
          "[place][replan][bad input]") {
  const Problem before = three();
  Problem after = before;
  SECTION("offsets") {
    REQUIRE_THROWS_WITH(replan(after, {before, {4, 0}}), Contains("2 offsets for 3 buffers"));
  }
  SECTION("no origin") {
    after.buffers.pop_back();
    REQUIRE_THROWS_WITH(replan(after, {before, {4, 0, 0}}), Contains("which is which"));
  }
  SECTION("an origin too few") {
    REQUIRE_THROWS_WITH(replan(after, {before, {4, 0, 0}, {0, 1}}), Contains("2 origins for 3"));
  }
  SECTION("an origin behind the end") {
    REQUIRE_THROWS_WITH(replan(after, {before, {4, 0, 0}, {0, 1, 3}}), Contains("its origin 3"));
  }
  SECTION("an origin twice") {
    REQUIRE_THROWS_WITH(replan(after, {before, {4, 0, 0}, {0, 1, 1}}), Contains("another's too"));
  }
}

TEST_CASE("Re-planned problems are legal and what stayed is counted", "[place][replan][property]") {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const Problem before = random_problem(random, 20 + random() % 60, seed % 2 == 0 ? 40 : 0);
    const Placement placed = place_buffers(before, quick());
    Problem after = before;
    PlacedBefore old{before, placed.offsets};
    for (std::size_t k = 0; k < 1 + seed % 5; ++k) {
      Buffer& buffer = after.buffers[random() % after.buffers.size()];
      buffer.size = 1 + random() % 80;
    }
    if (seed % 3 == 0) {
      for (std::uint32_t i = 0; i < after.buffers.size(); ++i) old.origin.push_back(i);
      const std::size_t gone = random() % after.buffers.size();
      after.buffers.erase(after.buffers.begin() + static_cast<std::ptrdiff_t>(gone));
      old.origin.erase(old.origin.begin() + static_cast<std::ptrdiff_t>(gone));
      after.buffers.push_back({.size = 30, .birth = random() % 40, .length = 5});
      old.origin.push_back(PlacedBefore::kNew);
    }
    // Some are in use.
    for (std::size_t i = 0; i + 1 < after.buffers.size(); ++i) {
      const std::uint32_t origin =
          old.origin.empty() ? static_cast<std::uint32_t>(i) : old.origin[i];
      if (random() % 8 == 0 && after.buffers[i].size <= before.buffers[origin].size)
        after.buffers[i].pinned = placed.offsets[origin];
    }
    const Replanned replanned = replan(after, old, quick());
    REQUIRE(check_placement(after, replanned.placement).value_or("") == "");
    std::size_t moved = 0;
    for (std::size_t i = 0; i < after.buffers.size(); ++i) {
      const std::uint32_t origin =
          old.origin.empty() ? static_cast<std::uint32_t>(i) : old.origin[i];
      moved += origin != PlacedBefore::kNew &&
               after.buffers[i].size <= before.buffers[origin].size &&
               replanned.placement.offsets[i] != placed.offsets[origin];
    }
    REQUIRE(replanned.moved == moved);
  }
}

TEST_CASE("Holes found by time are those found in address order", "[place][replan][property]") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Problem problem = random_problem(random, 60, seed % 2 == 0 ? 40 : 0);
    if (seed % 3 == 0) {
      problem.lanes.resize(2, problem.lanes[0]);
      for (Buffer& buffer : problem.buffers) buffer.lane = random() % 2;
    }
    const place::Conflicts conflicts(problem);
    const Placement placed = place_buffers(problem, quick());
    place::Rearrangement scanned(conflicts), stabbed(conflicts, 0);
    std::vector<place::Index> kept;
    for (place::Index i = 0; i < problem.buffers.size(); ++i) {
      if (i % 4 != 0) kept.push_back(i);
    }
    scanned.start(placed.offsets, kept);
    stabbed.start(placed.offsets, kept);
    for (place::Index i = 0; i < problem.buffers.size(); i += 4) {
      const Bytes capacity = placed.high_water_mark * (90 + random() % 20) / 100;
      REQUIRE(scanned.in_the_way(i, i) == stabbed.in_the_way(i, i));
      const auto hole = scanned.find_place(i, placed.offsets[i], capacity);
      REQUIRE(stabbed.find_place(i, placed.offsets[i], capacity) == hole);
      if (hole) {
        scanned.put(i, *hole);
        stabbed.put(i, *hole);
      } else {
        REQUIRE(scanned.make_room(i, 2, capacity) == stabbed.make_room(i, 2, capacity));
        REQUIRE(scanned.offsets() == stabbed.offsets());
      }
    }
  }
}
