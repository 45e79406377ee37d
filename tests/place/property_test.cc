// What must not change the optimum, or can only lower it; and the twin of the plans' verifier.

#include "csrc/place/plan_step.h"
#include "csrc/plan/verify.h"
#include "tests/catch.h"
#include "tests/support/placement_check.h"
#include "tests/support/problem_families.h"
#include "tests/support/random_plan.h"

#include <berth/place.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

using namespace berth;
using berth::test::check_placement;
using berth::test::filled_problem;
using berth::test::sweep_placement;

namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

// Proven, and checked pair by pair.
Bytes optimum(const Problem& problem) {
  const Placement placement = place_buffers(problem, {.time_limit_seconds = kForever});
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  REQUIRE(sweep_placement(problem, placement).value_or("") == "");
  REQUIRE(placement.proven_optimal);
  return placement.high_water_mark;
}

// Half are full in every section, where the optimum may exceed max load.
Problem some_problem(std::uint64_t seed) {
  if (seed % 2 == 0) return filled_problem(seed, 12, 20);
  std::mt19937_64 random(seed);
  Problem problem;
  problem.lanes[0].period = seed % 4 == 1 ? 10 : 0;
  for (std::size_t i = 0; i < 12; ++i) {
    problem.buffers.push_back(
        {.size = 1 + random() % 20, .birth = random() % 10, .length = 1 + random() % 6});
  }
  return problem;
}

std::uint64_t end_of(const Problem& problem) {
  std::uint64_t end = 0;
  for (const Buffer& b : problem.buffers) end = std::max(end, b.birth + b.length);
  return end;
}

}  // namespace

TEST_CASE("Reversed time and shuffled rows and scaled units keep the optimum",
          "[place][property]") {
  int above = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    CAPTURE(seed);
    const Problem problem = some_problem(seed);
    const Bytes bound = lower_bound(problem), best = optimum(problem);
    above += best > bound ? 1 : 0;
    const std::uint64_t period = problem.lanes[0].period;
    Problem reversed = problem, shuffled = problem, slow = problem, large = problem;
    for (Buffer& b : reversed.buffers) {
      const std::uint64_t end = b.birth + b.length;
      b.birth = period == 0 ? end_of(problem) - end : (2 * period - end) % period;
    }
    std::shuffle(shuffled.buffers.begin(), shuffled.buffers.end(), std::mt19937_64(seed));
    slow.lanes[0].period *= 3;
    for (Buffer& b : slow.buffers) {
      b.birth *= 3;
      b.length *= 3;
    }
    for (Buffer& b : large.buffers) b.size *= 1000;
    for (const Problem& other : {reversed, shuffled, slow}) {
      REQUIRE(lower_bound(other) == bound);
      REQUIRE(optimum(other) == best);
    }
    REQUIRE(lower_bound(large) == 1000 * bound);
    REQUIRE(optimum(large) == 1000 * best);
  }
  REQUIRE(above > 0);
}

TEST_CASE("A line on a circle that it fits has the optimum of the line", "[place][property][arc]") {
  for (std::uint64_t seed = 2; seed <= 120; seed += 2) {
    CAPTURE(seed);
    const Problem line = some_problem(seed);
    Problem circle = line;
    circle.lanes[0].period = end_of(line) + 1;
    REQUIRE(lower_bound(circle) == lower_bound(line));
    REQUIRE(optimum(circle) == optimum(line));
  }
}

TEST_CASE("Without one of its buffers a problem needs no more", "[place][property]") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Problem problem = some_problem(seed);
    std::mt19937_64 random(seed);
    Bytes best = optimum(problem), bound = lower_bound(problem);
    while (problem.buffers.size() > 1) {
      problem.buffers.erase(problem.buffers.begin() +
                            static_cast<std::ptrdiff_t>(random() % problem.buffers.size()));
      const Bytes fewer = optimum(problem);
      REQUIRE(fewer <= best);
      REQUIRE(lower_bound(problem) <= bound);
      best = fewer;
      bound = lower_bound(problem);
    }
    REQUIRE(best == problem.buffers.front().size);
  }
}

TEST_CASE("The verifier of plans and a check of every pair agree when an offset moves by one unit",
          "[place][plan][property]") {
  int legal = 0, illegal = 0;
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Plan plan = berth::test::random_plan(20 + seed, 9, random);
    const Problem problem = make_problem(plan);
    const Placement placement =
        place_buffers(problem, {.time_limit_seconds = kForever, .iteration_budget = 50});
    std::vector<Slot>& slots = plan.sequences.front().slots;
    REQUIRE(problem.buffers.size() == slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i].offset = placement.offsets[i];
    plan.lower_bound = placement.lower_bound;
    const auto agree = [&] {
      Placement moved = placement;
      moved.high_water_mark = 0;
      for (std::size_t i = 0; i < slots.size(); ++i) {
        moved.offsets[i] = slots[i].offset;
        moved.high_water_mark = std::max(moved.high_water_mark, slots[i].offset + slots[i].size);
      }
      moved.lower_bound = std::min(moved.lower_bound, moved.high_water_mark);
      moved.proven_optimal = moved.lower_bound == moved.high_water_mark;
      plan.arena_bytes = moved.high_water_mark;
      plan.lower_bound = moved.lower_bound;
      const bool expected = !check_placement(problem, moved);
      REQUIRE(!verify(plan) == expected);
      REQUIRE(!sweep_placement(problem, moved) == expected);
      ++(expected ? legal : illegal);
      return expected;
    };
    REQUIRE(agree());
    for (Slot& slot : slots) {
      const Bytes offset = slot.offset;
      for (const bool up : {true, false}) {
        if (!up && offset == 0) continue;
        slot.offset = up ? offset + plan.alignment : offset - plan.alignment;
        (void)agree();
      }
      slot.offset = offset;
    }
  }
  CAPTURE(legal, illegal);
  REQUIRE(legal > 500);
  REQUIRE(illegal > 500);
}
