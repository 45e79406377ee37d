// Families that are hard for some planner; bench/adversarial has their table.

#include "tests/catch.h"
#include "tests/support/placement_check.h"
#include "tests/support/problem_families.h"

#include <berth/place.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace berth;
using berth::test::check_placement;
using berth::test::problem_families;
using berth::test::ProblemFamily;
using berth::test::sweep_placement;

namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

Placement place_and_check(const Problem& problem, const PlaceOptions& options) {
  Placement placement = place_buffers(problem, options);
  REQUIRE(sweep_placement(problem, placement).value_or("") == "");
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  return placement;
}

PlaceOptions budget(std::uint64_t iterations) {
  return {.time_limit_seconds = kForever, .iteration_budget = iterations};
}

Bytes optimum(const ProblemFamily& family, const Problem& problem) {
  return static_cast<Bytes>(
      std::llround(family.optimum * static_cast<double>(lower_bound(problem))));
}

}  // namespace

TEST_CASE("Adversarial families of known optimum are placed at it", "[place][adversarial]") {
  for (const ProblemFamily& family : problem_families()) {
    if (family.optimum == 0) continue;
    CAPTURE(family.name);
    for (const std::uint64_t count : {6u, 20u, 60u, 300u}) {
      CAPTURE(count);
      const Problem problem = family.make(count, 1);
      REQUIRE(place_and_check(problem, budget(2000)).high_water_mark == optimum(family, problem));
    }
  }
}

TEST_CASE("Adversarial families are never placed below what they need", "[place][adversarial]") {
  for (const ProblemFamily& family : problem_families()) {
    CAPTURE(family.name);
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      CAPTURE(seed);
      const Problem problem = family.make(40 * seed, seed);
      for (const std::string engine : {"first_fit", "dive", "exact", "auto"}) {
        CAPTURE(engine);
        PlaceOptions options = budget(60);
        options.engine = engine;
        const Placement placement = place_and_check(problem, options);
        REQUIRE(placement.lower_bound >= lower_bound(problem));
        if (family.optimum == 0) continue;
        REQUIRE(placement.lower_bound <= optimum(family, problem));
        REQUIRE(placement.high_water_mark >= optimum(family, problem));
      }
    }
  }
}

TEST_CASE("Adversarial families are placed alike by any number of threads",
          "[place][adversarial][threads]") {
  for (const ProblemFamily& family : problem_families()) {
    CAPTURE(family.name);
    const Problem problem = family.make(200, 3);
    PlaceOptions options = budget(150);
    const Placement one = place_and_check(problem, options);
    for (const unsigned threads : {2u, 8u}) {
      options.threads = threads;
      const Placement more = place_buffers(problem, options);
      REQUIRE(more.offsets == one.offsets);
      REQUIRE(more.lower_bound == one.lower_bound);
      REQUIRE(more.engine == one.engine);
    }
  }
}

TEST_CASE("Sums that no double holds are counted to the byte", "[place][adversarial]") {
  const Problem problem = berth::test::families::huge(100, 1);
  Bytes most = 0;
  for (std::size_t i = 80; i < 100; ++i) most += problem.buffers[i].size;
  REQUIRE(most > Bytes{1} << 58);
  REQUIRE(lower_bound(problem) == most);
  REQUIRE(place_and_check(problem, budget(60)).high_water_mark == most);
}
