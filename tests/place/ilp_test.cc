#include "csrc/place/fits/pyramid.h"
#include "csrc/place/oracle/integer_program.h"
#include "tests/catch.h"
#include "tests/support/placement_check.h"
#include "tests/support/problem_families.h"

#include <berth/error.h>
#include <berth/place.h>
#include <berth/place_ilp.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <random>
#include <string>

using namespace berth;
using berth::test::check_placement;
using berth::test::optimal_high_water_mark;
using berth::test::rounded_size;
using berth::test::share_a_tick;
using Catch::Matchers::Contains;

namespace {

Problem above_max_load(Bytes unit = 1) {
  Problem problem = test::above_max_load();
  for (Buffer& buffer : problem.buffers) buffer.size *= unit;
  return problem;
}

// The optimum of a problem of one lane by trying every offset, pins and alignments included.
Bytes optimum_by_grid(const Problem& problem) {
  const auto& buffers = problem.buffers;
  std::vector<Bytes> offsets(buffers.size());
  const std::function<bool(std::size_t, Bytes)> fits = [&](std::size_t i, Bytes capacity) {
    if (i == buffers.size()) return true;
    const Bytes size = rounded_size(problem, buffers[i]);
    const Bytes unit = std::max(problem.alignment, buffers[i].alignment);
    for (Bytes offset = buffers[i].pinned.value_or(0); offset + size <= capacity; offset += unit) {
      bool free = true;
      for (std::size_t j = 0; j < i && free; ++j) {
        free = offset >= offsets[j] + rounded_size(problem, buffers[j]) ||
               offsets[j] >= offset + size ||
               !share_a_tick(problem.lanes[0].period, buffers[i], buffers[j]);
      }
      offsets[i] = offset;
      if (free && fits(i + 1, capacity)) return true;
      if (buffers[i].pinned) return false;
    }
    return false;
  };
  for (Bytes capacity = lower_bound(problem);; ++capacity) {
    if (fits(0, capacity)) return capacity;
  }
}

Problem random_problem(std::mt19937_64& random, std::size_t count, std::uint64_t period) {
  Problem problem;
  problem.lanes[0].period = period;
  const std::uint64_t ticks = period != 0 ? period : 4 + random() % 8;
  for (std::size_t i = 0; i < count; ++i) {
    problem.buffers.push_back(
        {.size = 1 + random() % 5, .birth = random() % ticks, .length = 1 + random() % 4});
  }
  return problem;
}

// Every section filled to one load: what no first fit places well.
Problem tight_problem(std::mt19937_64& random, std::uint64_t ticks, Bytes load = 8) {
  Problem problem;
  std::vector<Bytes> free(ticks, load);
  for (std::uint64_t birth = 0; birth < ticks; ++birth) {
    while (free[birth] > 0) {
      const Bytes size = 1 + random() % std::min<Bytes>(free[birth], load / 2);
      std::uint64_t end = birth + 1;
      while (end < ticks && free[end] >= size && random() % 3 != 0) ++end;
      for (std::uint64_t t = birth; t < end; ++t) free[t] -= size;
      problem.buffers.push_back({.size = size, .birth = birth, .length = end - birth});
    }
  }
  return problem;
}

// Whether the tests of this file can run: their one answer elsewhere is the error.
bool no_solver() {
  if (!place::unavailable_solver()) return false;
  WARN("skipped: " << *place::unavailable_solver());  // CTest counts it by this word
  return true;
}

PlaceOptions by(const std::string& engine) {
  use_ilp();
  PlaceOptions options;
  options.engine = engine;
  options.time_limit_seconds = std::numeric_limits<double>::infinity();  // however busy the machine
  return options;
}

}  // namespace

TEST_CASE("Without the solver the engine says what is missing", "[place][ilp]") {
  if (!place::unavailable_solver()) return;
  for (const char* engine : {"ilp", "ilp_pyramid"}) {
    REQUIRE_THROWS_WITH(place_buffers(above_max_load(), by(engine)),
                        Contains("HiGHS") && Contains("cmake/setup"));
  }
}

TEST_CASE("The integer program proves an optimum above max load", "[place][ilp]") {
  if (no_solver()) return;
  // Units of 12 bytes: sizes are divided by what divides them all.
  const Problem problem = above_max_load(12);
  const Placement placement = place_buffers(problem, by("ilp"));
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  REQUIRE(placement.high_water_mark == 7 * 12);
  REQUIRE(placement.lower_bound == 7 * 12);
  REQUIRE(placement.proven_optimal);
}

TEST_CASE("The integer program finds the optimum of random problems", "[place][ilp][property]") {
  if (no_solver()) return;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Problem problem = random_problem(random, 5 + random() % 5, seed % 2 == 0 ? 8 : 0);
    if (seed % 3 == 0) problem.alignment = 4;
    if (seed % 5 == 0) problem.buffers[0].alignment = 8;
    const Placement placement = place_buffers(problem, by("ilp"));
    REQUIRE(check_placement(problem, placement).value_or("") == "");
    REQUIRE(placement.high_water_mark == optimal_high_water_mark(problem));
    REQUIRE(placement.proven_optimal);
  }
}

TEST_CASE("The integer program finds the optimum where every section is full",
          "[place][ilp][property]") {
  if (no_solver()) return;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const Problem problem = tight_problem(random, 5);
    if (problem.buffers.size() > 9) continue;
    const Placement placement = place_buffers(problem, by("ilp"));
    REQUIRE(check_placement(problem, placement).value_or("") == "");
    REQUIRE(placement.high_water_mark == optimal_high_water_mark(problem));
    REQUIRE(placement.proven_optimal);
  }
}

TEST_CASE("The integer program and exact search agree on up to 14 buffers",
          "[place][ilp][exact][property]") {
  if (no_solver()) return;
  int above = 0;
  const auto agree = [&](const Problem& problem) {
    const Placement searched = place_buffers(problem, by("exact")),
                    solved = place_buffers(problem, by("ilp"));
    REQUIRE(check_placement(problem, searched).value_or("") == "");
    REQUIRE(check_placement(problem, solved).value_or("") == "");
    REQUIRE(searched.proven_optimal);
    REQUIRE(solved.proven_optimal);
    REQUIRE(searched.high_water_mark == solved.high_water_mark);
    above += solved.high_water_mark > lower_bound(problem) ? 1 : 0;
  };
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    CAPTURE(seed);
    for (const std::uint64_t period : {0u, 8u}) {
      CAPTURE(period);
      std::mt19937_64 random(seed);
      Problem problem = random_problem(random, 10 + seed % 5, period);
      agree(problem);
      Problem aligned = problem;
      for (Buffer& buffer : aligned.buffers) buffer.alignment = Bytes{1} << random() % 4;
      agree(aligned);
      Problem pinned = aligned;
      // Where a placement has them, so that they do not collide.
      const Placement placement = place_buffers(pinned, by("first_fit"));
      for (std::size_t i = 0; i < 3; ++i)
        pinned.buffers[i].pinned = placement.offsets[i] + 8 * (seed % 2);
      agree(pinned);
    }
  }
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    CAPTURE(seed);
    const Problem problem = test::filled_problem(seed, 8 + seed % 3 * 4, 8);
    if (problem.buffers.size() > 14) continue;
    PlaceOptions options = by("exact");
    if (place_buffers(problem, options).high_water_mark > lower_bound(problem)) agree(problem);
  }
  CAPTURE(above);
  REQUIRE(above > 20);
}

TEST_CASE("The integer program keeps pins and is optimal around them", "[place][ilp][pin]") {
  if (no_solver()) return;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Problem problem = random_problem(random, 6, seed % 2 == 0 ? 8 : 0);
    problem.buffers[1].alignment = 2;
    problem.buffers[0].pinned = random() % 5;
    const Placement placement = place_buffers(problem, by("ilp"));
    REQUIRE(check_placement(problem, placement).value_or("") == "");
    REQUIRE(placement.high_water_mark == optimum_by_grid(problem));
    REQUIRE(placement.proven_optimal);
  }
}

TEST_CASE("Lanes without edges never share bytes in the integer program", "[place][ilp][lane]") {
  if (no_solver()) return;
  Problem problem = above_max_load();
  problem.lanes.resize(2);
  problem.buffers.push_back({.size = 5, .birth = 20, .length = 1, .lane = 1});
  const Placement placement = place_buffers(problem, by("ilp"));
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  REQUIRE(placement.high_water_mark == 12);
  REQUIRE(placement.proven_optimal);
}

TEST_CASE("A pyramid is nested lifetimes from the longest on", "[place][ilp]") {
  const Problem problem{.buffers = {{.size = 1, .birth = 4, .length = 2},
                                    {.size = 1, .birth = 0, .length = 10},
                                    {.size = 1, .birth = 1, .length = 6},
                                    {.size = 1, .birth = 5, .length = 5},
                                    {.size = 1, .birth = 6, .length = 1}}};
  REQUIRE(place::pyramid(place::Conflicts(problem)) == std::vector<place::Index>{1, 2, 0});
}

TEST_CASE("On a circle a pyramid may cross the seam", "[place][ilp][arc]") {
  const Problem problem{.buffers = {{.size = 1, .birth = 7, .length = 6},
                                    {.size = 1, .birth = 1, .length = 2},
                                    {.size = 1, .birth = 0, .length = 4},
                                    {.size = 1, .birth = 3, .length = 10}},
                        .lanes = {{.period = 10}}};
  REQUIRE(place::pyramid(place::Conflicts(problem)) == std::vector<place::Index>{3, 0, 1});
}

TEST_CASE("Fixing the pyramid can cut off the optimum and then proves nothing", "[place][ilp]") {
  if (no_solver()) return;
  Problem problem;
  for (const auto& [lower, upper, size] :
       std::vector<std::tuple<std::uint64_t, std::uint64_t, Bytes>>{
           {0, 2, 4}, {0, 3, 4}, {2, 4, 3}, {2, 7, 1}, {3, 7, 3}, {3, 4, 1}, {4, 7, 4}}) {
    problem.buffers.push_back({.size = size, .birth = lower, .length = upper - lower});
  }
  REQUIRE(place_buffers(problem, by("ilp")).high_water_mark == 8);
  const Placement fixed = place_buffers(problem, by("ilp_pyramid"));
  REQUIRE(check_placement(problem, fixed).value_or("") == "");
  REQUIRE(fixed.high_water_mark == 9);
  REQUIRE_FALSE(fixed.proven_optimal);
}

TEST_CASE("As published the integer program gets no help and gives its own answer",
          "[place][ilp]") {
  if (no_solver()) return;
  const Problem problem{
      .buffers = {{.size = 4, .birth = 0, .length = 2}, {.size = 2, .birth = 1, .length = 2}}};
  REQUIRE(place_buffers(problem, by("first_fit")).proven_optimal);
  const Placement placement = place_buffers(problem, by("ilp_pyramid"));
  REQUIRE(placement.engine == "ilp_pyramid");
  REQUIRE(placement.proven_optimal);
  // Where it finds nothing in time there is a placement all the same.
  PlaceOptions none = by("ilp_pyramid");
  none.time_limit_seconds = 0;
  REQUIRE(check_placement(problem, place_buffers(problem, none)).value_or("") == "");
}

TEST_CASE("The integer program stops at its limits with something legal", "[place][ilp][cancel]") {
  if (no_solver()) return;
  std::mt19937_64 random(1);
  Problem problem = tight_problem(random, 40, 1000);
  std::atomic<bool> cancel{false};
  PlaceOptions options = by("ilp");
  SECTION("of time") { options.time_limit_seconds = 0.1; }
  SECTION("of nodes") {
    problem = tight_problem(random, 12, 1000);
    options.iteration_budget = 3;
  }
  SECTION("by the caller") {
    options.cancel = &cancel;
    options.progress = [&](const PlaceProgress&) { cancel = true; };
  }
  SECTION("at the capacity") { options.capacity = 2 * lower_bound(problem); }
  // To the end it would take hours.
  const Placement placement = place_buffers(problem, options);
  REQUIRE(check_placement(problem, placement).value_or("") == "");
}

TEST_CASE("What progress throws comes out of the integer program", "[place][ilp]") {
  if (no_solver()) return;
  PlaceOptions options = by("ilp");
  options.progress = [](const PlaceProgress& progress) {
    if (progress.seconds > 0.05) throw std::runtime_error("enough");
  };
  std::mt19937_64 random(1);
  REQUIRE_THROWS_WITH(place_buffers(tight_problem(random, 40, 1000), options), "enough");
}

TEST_CASE("Too many pairs for an integer program are refused with the limit", "[place][ilp]") {
  if (no_solver()) return;
  Problem problem = above_max_load(1 << 20);
  for (int i = 0; i < 1500; ++i) problem.buffers.push_back({.size = 1, .birth = 100, .length = 1});
  REQUIRE_THROWS_WITH(place_buffers(problem, by("ilp")), Contains("at most 1000000 pairs"));
}

TEST_CASE("A solver takes columns and rows and gives the optimum and its bound", "[place][ilp]") {
  if (no_solver()) return;
  place::IntegerProgram program;
  const auto x = program.add_column(-3, 0, 10), y = program.add_column(-2, 0, 10);
  program.add_row(-place::IntegerProgram::kInfinity, 7.5, {{x, 1}, {y, 1}});
  program.add_row(-place::IntegerProgram::kInfinity, 5, {{x, 2}, {y, -1}});
  const place::SolverResult result = place::solve(program, {});
  REQUIRE(result.complete);
  REQUIRE(result.values.at(0) == Approx(4));
  REQUIRE(result.values.at(1) == Approx(3));
  REQUIRE(result.bound > -19);
}

TEST_CASE("A program without a solution has none", "[place][ilp]") {
  if (no_solver()) return;
  place::IntegerProgram program;
  const auto x = program.add_column(1, 0, 10);
  program.add_row(11, 12, {{x, 1}});
  const place::SolverResult result = place::solve(program, {});
  REQUIRE(result.complete);
  REQUIRE(result.values.empty());
}
