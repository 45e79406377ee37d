// Problems whose optimum lies above max load: every section is filled to one load, and exact search
// refutes it. The brief's family; random problems hardly ever are of it.

#include "csrc/place/exact/exact_search.h"
#include "csrc/place/problem/strip.h"
#include "tests/catch.h"
#include "tests/support/placement_check.h"
#include "tests/support/problem_families.h"

#include <berth/place.h>

#include <limits>
#include <string>
#include <vector>

using namespace berth;
using namespace berth::place;
using berth::test::check_placement;
using berth::test::filled_problem;
using berth::test::line;
using berth::test::optimal_high_water_mark;

namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

Answer answer_at(const Problem& problem, Bytes capacity) {
  const Conflicts conflicts(problem);
  const auto strips = make_strips(conflicts);
  REQUIRE(strips);
  ExactSearch exact(strips->front(), capacity, 1);
  std::uint64_t nodes = 10'000'000;
  return exact.run(nodes, nullptr);
}

struct Refuted {
  const char* name;
  Problem problem;
  Bytes load, optimum;
};

// Found among filled problems of 8 to 20 ticks, named by their number of buffers.
const std::vector<Refuted>& refuted_problems() {
  static const std::vector<Refuted> problems = {
      {"nine",
       line({{7, 8, 3},
             {0, 3, 3},
             {3, 7, 2},
             {0, 2, 3},
             {3, 6, 1},
             {2, 6, 2},
             {6, 8, 3},
             {2, 5, 1},
             {5, 7, 1}}),
       6, 7},
      {"nine others",
       line({{6, 12, 1},
             {5, 6, 2},
             {4, 8, 1},
             {5, 9, 3},
             {0, 5, 5},
             {6, 8, 1},
             {0, 4, 1},
             {8, 9, 2},
             {9, 12, 5}}),
       6, 7},
      {"eleven",
       line({{7, 12, 4},
             {0, 7, 5},
             {14, 16, 2},
             {12, 15, 4},
             {7, 10, 1},
             {8, 15, 2},
             {10, 14, 2},
             {8, 10, 1},
             {0, 8, 3},
             {15, 16, 5},
             {15, 16, 1}}),
       8, 9},
      {"eleven others",
       line({{7, 10, 3},
             {6, 10, 1},
             {9, 12, 4},
             {6, 9, 1},
             {9, 12, 2},
             {3, 7, 10},
             {10, 12, 4},
             {9, 12, 2},
             {3, 6, 2},
             {7, 9, 7},
             {0, 3, 12}}),
       12, 13},
      {"26",
       line({{3, 5, 17}, {7, 8, 20}, {2, 3, 26}, {5, 7, 24}, {6, 8, 9},  {0, 4, 2}, {5, 6, 6},
             {0, 1, 5},  {3, 5, 1},  {6, 8, 1},  {2, 6, 3},  {2, 6, 1},  {6, 8, 2}, {3, 4, 6},
             {0, 1, 35}, {5, 7, 14}, {4, 5, 14}, {2, 3, 1},  {1, 5, 11}, {0, 1, 8}, {1, 2, 37},
             {3, 6, 2},  {3, 5, 1},  {7, 8, 18}, {2, 4, 4},  {2, 4, 2}}),
       50, 52},
      {"34", line({{5, 6, 2},   {6, 10, 1},  {8, 11, 3}, {6, 9, 7},   {8, 11, 1},   {8, 10, 15},
                   {7, 10, 3},  {11, 12, 5}, {0, 2, 49}, {4, 5, 1},   {10, 12, 27}, {9, 12, 9},
                   {5, 6, 4},   {6, 10, 7},  {6, 11, 2}, {2, 5, 11},  {2, 5, 6},    {9, 12, 1},
                   {9, 12, 3},  {5, 8, 16},  {8, 12, 2}, {11, 12, 2}, {0, 4, 1},    {2, 8, 6},
                   {5, 10, 1},  {2, 7, 7},   {2, 6, 13}, {6, 9, 3},   {7, 11, 1},   {8, 11, 1},
                   {11, 12, 1}, {2, 5, 6},   {5, 6, 1},  {7, 9, 3}}),
       50, 51},
      {"40", line({{9, 12, 2},  {15, 20, 4}, {3, 10, 2},  {3, 7, 1},   {13, 14, 1},  {19, 20, 43},
                   {16, 20, 1}, {3, 11, 1},  {6, 16, 1},  {4, 13, 2},  {12, 14, 7},  {0, 5, 5},
                   {9, 15, 9},  {0, 1, 35},  {2, 12, 1},  {10, 11, 2}, {14, 19, 29}, {11, 15, 3},
                   {0, 4, 2},   {1, 5, 1},   {1, 9, 15},  {5, 14, 6},  {1, 6, 15},   {15, 19, 11},
                   {3, 11, 1},  {11, 15, 3}, {11, 17, 2}, {9, 19, 2},  {6, 14, 14},  {7, 14, 1},
                   {17, 20, 1}, {9, 11, 2},  {1, 2, 1},   {0, 3, 8},   {1, 11, 2},   {3, 12, 3},
                   {1, 11, 1},  {11, 12, 1}, {17, 19, 1}, {13, 20, 1}}),
       50, 52}};
  return problems;
}

}  // namespace

TEST_CASE("Full problems above max load are proven to be and no engine goes below",
          "[place][refuted]") {
  for (const Refuted& refuted : refuted_problems()) {
    CAPTURE(refuted.name);
    const Problem& problem = refuted.problem;
    REQUIRE(lower_bound(problem) == refuted.load);
    REQUIRE(refuted.optimum > refuted.load);
    REQUIRE(answer_at(problem, refuted.optimum - 1) == Answer::kRefuted);
    REQUIRE(answer_at(problem, refuted.optimum) == Answer::kFits);
    for (const std::string engine : {"auto", "exact", "dive", "first_fit"}) {
      CAPTURE(engine);
      const bool proves = engine == "auto" || engine == "exact";
      const Placement placement =
          place_buffers(problem, {.engine = engine,
                                  .time_limit_seconds = kForever,
                                  .iteration_budget = proves ? std::uint64_t{10'000'000} : 200});
      REQUIRE(check_placement(problem, placement).value_or("") == "");
      REQUIRE(placement.high_water_mark >= refuted.optimum);
      REQUIRE(placement.lower_bound <= refuted.optimum);
      if (!proves) continue;
      REQUIRE(placement.high_water_mark == refuted.optimum);
      REQUIRE(placement.proven_optimal);
    }
  }
}

TEST_CASE("Small full problems above max load are so by exhaustive search", "[place][refuted]") {
  int small = 0;
  for (const Refuted& refuted : refuted_problems()) {
    if (refuted.problem.buffers.size() > 11) continue;
    CAPTURE(refuted.name);
    REQUIRE(optimal_high_water_mark(refuted.problem) == refuted.optimum);
    ++small;
  }
  REQUIRE(small >= 3);
}

TEST_CASE("What exact search refutes of full problems no other engine finds",
          "[place][refuted][property]") {
  int refuted = 0, all = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    CAPTURE(seed);
    const Problem problem = filled_problem(seed, 8 + seed % 5 * 4, 6 + seed % 7 * 4);
    if (problem.buffers.size() > 40) continue;
    ++all;
    const Bytes load = lower_bound(problem);
    const Answer answer = answer_at(problem, load);
    REQUIRE(answer != Answer::kOpen);
    if (answer == Answer::kFits) continue;
    ++refuted;
    const Placement placement = place_buffers(
        problem, {.engine = "dive", .time_limit_seconds = kForever, .iteration_budget = 100});
    REQUIRE(check_placement(problem, placement).value_or("") == "");
    REQUIRE(placement.high_water_mark > load);
    const Placement proven = place_buffers(problem, {.time_limit_seconds = kForever});
    REQUIRE(check_placement(problem, proven).value_or("") == "");
    REQUIRE(proven.proven_optimal);
    REQUIRE(proven.high_water_mark > load);
    REQUIRE(proven.high_water_mark <= placement.high_water_mark);
  }
  CAPTURE(refuted, all);
  REQUIRE(refuted > 14);
  REQUIRE(refuted < all);
}
