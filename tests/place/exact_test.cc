// Exact search against exhaustive search, and what each of its rules is good for.

#include "csrc/place/exact/exact_search.h"
#include "csrc/place/problem/strip.h"
#include "csrc/place/stages/strip_search.h"
#include "tests/catch.h"
#include "tests/support/placement_check.h"
#include "tests/support/problem_families.h"

#include <berth/place.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

using namespace berth;
using namespace berth::place;
using berth::test::above_max_load;
using berth::test::check_placement;
using berth::test::filled_problem;
using berth::test::line;
using berth::test::optimal_high_water_mark;

namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

struct Run {
  Answer answer = Answer::kOpen;
  std::uint64_t nodes = 0;
  std::optional<Placement> placement = {};
};

// The strip of a problem of one line, with what is alive all the time among the items if asked for.
Strip strip_of(const Conflicts& conflicts, bool keep_whole = false) {
  std::vector<Arc> arcs;
  for (Index i = 0; i < conflicts.size(); ++i) {
    const Buffer& buffer = conflicts.problem().buffers[i];
    arcs.push_back({i, buffer.birth, buffer.length});
  }
  return make_strip(conflicts, arcs, 0, keep_whole);
}

// Exact search alone at a capacity; what fits is checked.
Run search(const Problem& problem, Bytes capacity, const ExactRules& rules = {},
           std::uint64_t nodes = 1'000'000) {
  const Conflicts conflicts(problem);
  const auto strips = make_strips(conflicts);
  REQUIRE(strips);
  const Strip& strip = strips->front();
  if (capacity < max_load(strip)) return {Answer::kRefuted, 0, {}};
  ExactSearch exact(strip, capacity, 1, rules);
  Run run;
  std::uint64_t left = nodes;
  run.answer = exact.run(left, nullptr);
  run.nodes = nodes - left;
  if (run.answer != Answer::kFits) return run;
  Placement placement;
  placement.offsets.resize(problem.buffers.size());
  for (const auto& [buffer, offset] : strip.bottom) placement.offsets[buffer] = offset;
  const std::vector<Bytes> offsets = exact.offsets();
  for (std::size_t i = 0; i < offsets.size(); ++i)
    placement.offsets[strip.items[i].buffer] = offsets[i];
  for (std::size_t i = 0; i < problem.buffers.size(); ++i)
    placement.high_water_mark =
        std::max(placement.high_water_mark, placement.offsets[i] + conflicts.bytes(Index(i)));
  placement.proven_optimal = placement.high_water_mark == 0;
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  REQUIRE(placement.high_water_mark <= capacity);
  run.placement = placement;
  return run;
}

// The least capacity that fits, with a proof that the next lower one does not.
Bytes optimum(const Problem& problem, const ExactRules& rules = {}) {
  for (Bytes capacity = lower_bound(problem);; ++capacity) {
    const Answer answer = search(problem, capacity, rules).answer;
    REQUIRE(answer != Answer::kOpen);
    if (answer == Answer::kFits) return capacity;
  }
}

}  // namespace

TEST_CASE("The optimum may exceed max load and is proven", "[place][exact]") {
  const Problem problem = above_max_load();
  REQUIRE(lower_bound(problem) == 6);
  const Placement placement = place_buffers(problem, {.time_limit_seconds = kForever});
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  REQUIRE(placement.high_water_mark == 7);
  REQUIRE(placement.lower_bound == 7);
  REQUIRE(placement.proven_optimal);
  SECTION("so is that a capacity is too small") {
    const Placement refuted = place_buffers(problem, {.capacity = 6});
    REQUIRE(refuted.proven_infeasible);
    REQUIRE(refuted.high_water_mark == 7);
  }
}

TEST_CASE("Three arcs of two thirds of a circle are proven to need three places",
          "[place][exact][arc]") {
  const Problem problem{.buffers = {{.size = 1, .birth = 0, .length = 4},
                                    {.size = 1, .birth = 2, .length = 4},
                                    {.size = 1, .birth = 4, .length = 4}},
                        .lanes = {{.period = 6}}};
  const Placement placement = place_buffers(problem, {.time_limit_seconds = kForever});
  REQUIRE(placement.high_water_mark == 3);
  REQUIRE(placement.proven_optimal);
}

TEST_CASE("Small problems are placed at the optimum of exhaustive search",
          "[place][exact][property]") {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Problem problem;
    const std::uint64_t ticks = 4 + random() % 8;
    problem.lanes[0].period = seed % 2 == 0 ? ticks : 0;
    const std::size_t count = 2 + random() % 6;
    for (std::size_t i = 0; i < count; ++i) {
      Buffer buffer{.size = 1 + random() % 9, .birth = random() % ticks};
      buffer.length = 1 + random() % (ticks - 1);
      if (seed % 3 == 0) buffer.alignment = Bytes{1} << random() % 4;
      problem.buffers.push_back(buffer);
    }
    if (seed % 5 == 0) problem.alignment = 4;
    const Placement placement = place_buffers(problem, {.time_limit_seconds = kForever});
    REQUIRE(check_placement(problem, placement).value_or("") == "");
    REQUIRE(placement.high_water_mark == optimal_high_water_mark(problem));
    REQUIRE(placement.proven_optimal);
  }
}

TEST_CASE("What exact search refutes exhaustive search does not find", "[place][exact][property]") {
  int refuted = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    CAPTURE(seed);
    const Problem problem = filled_problem(seed, 8, 6);
    if (problem.buffers.size() > 9) continue;
    const Answer answer = search(problem, 6).answer;
    if (answer == Answer::kFits && seed % 20 != 0) continue;
    REQUIRE(answer == (optimal_high_water_mark(problem) > 6 ? Answer::kRefuted : Answer::kFits));
    refuted += answer == Answer::kRefuted ? 1 : 0;
  }
  REQUIRE(refuted > 0);
}

TEST_CASE("Without any of its rules exact search finds the same optimum",
          "[place][exact][property]") {
  int above = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    CAPTURE(seed);
    const Problem problem = filled_problem(seed, 12, 8);
    const Bytes best = optimum(problem);
    above += best > 8 ? 1 : 0;
    if (best == 8 && seed % 30 != 0) continue;
    for (const ExactRules& rules :
         {ExactRules{.peel = false}, ExactRules{.split = false}, ExactRules{.twins = false},
          ExactRules{.look_ahead = false}, ExactRules{.failed = false},
          ExactRules{false, false, false, false, false, false}})
      REQUIRE(optimum(problem, rules) == best);
  }
  REQUIRE(above > 3);
}

TEST_CASE("Every rule of exact search saves nodes", "[place][exact]") {
  ExactRules without;
  std::uint64_t ticks = 16, copies = 1;
  Bytes above = 0;
  SECTION("peeling") {
    without.peel = false;
    above = 6;
  }
  SECTION("splitting") { without.split = false; }
  SECTION("twins") {
    without.twins = false;
    copies = 2;
    ticks = 8;
  }
  SECTION("looking ahead") { without.look_ahead = false; }
  SECTION("remembering what failed") {
    without.failed = false;
    ticks = 24;
  }
  std::uint64_t with = 0, all = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Problem problem = filled_problem(seed, ticks, 12);
    const std::size_t count = problem.buffers.size();
    for (std::size_t i = count; i < copies * count; ++i)
      problem.buffers.push_back(problem.buffers[i - count]);
    const Bytes capacity = 12 * copies + above;
    const Run run = search(problem, capacity), other = search(problem, capacity, without);
    CAPTURE(seed);
    if (other.answer != Answer::kOpen) REQUIRE(run.answer == other.answer);
    with += run.nodes;
    all += other.nodes;
  }
  CAPTURE(with, all);
  REQUIRE(with < all);
}

TEST_CASE("Exact search in common units refutes up to the next unit at once", "[place][exact]") {
  Problem problem = above_max_load();
  for (Buffer& buffer : problem.buffers) buffer.size *= 12;
  const Conflicts conflicts(problem);
  const Strip strip = strip_of(conflicts);
  for (const bool units : {true, false}) {
    std::uint64_t nodes = 1'000'000;
    ExactSearch exact(strip, 6 * 12, 1, {.units = units});
    REQUIRE(exact.run(nodes, nullptr) == Answer::kRefuted);
    REQUIRE(exact.least_mark() == (units ? 7 * 12 : 6 * 12 + 1));
  }
  REQUIRE(optimum(problem) == 7 * 12);
  REQUIRE(optimum(problem, {.units = false}) == 7 * 12);
}

TEST_CASE("Exact search in common units sees what fits whatever the others do", "[place][exact]") {
  // Any byte that is free is part of a free unit, and all have one.
  const Problem problem = line({{0, 4, 64}, {2, 8, 64}, {3, 6, 64}});
  const Conflicts conflicts(problem);
  const Strip strip = strip_of(conflicts, true);
  REQUIRE(make_exact_parts(strip, 3 * 64, {}).peeled.size() == 3);
  REQUIRE(make_exact_parts(strip, 3 * 64, {.units = false}).peeled.empty());
}

TEST_CASE("Exact search never passes over what nothing can lift", "[place][exact]") {
  // Sixteen that meet nobody, beside what does not fit: only the latter is worth a choice.
  Problem problem = above_max_load();
  for (std::uint64_t t = 10; t < 26; ++t)
    problem.buffers.push_back({.size = 1 + t % 3, .birth = t, .length = 1});
  const ExactRules rules{.peel = false, .split = false, .failed = false};
  ExactRules blind = rules;
  blind.look_ahead = false;
  const Run with = search(problem, 6, rules), without = search(problem, 6, blind);
  REQUIRE(with.answer == Answer::kRefuted);
  REQUIRE(without.answer != Answer::kFits);
  CAPTURE(with.nodes, without.nodes);
  REQUIRE(with.nodes * 10 < without.nodes);
}

TEST_CASE("Buffers alive all the time cost exact search nothing", "[place][exact][whole life]") {
  std::uint64_t below = 0, among = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Problem problem = filled_problem(seed, 12, 20);
    for (int i = 0; i < 2; ++i)
      problem.buffers.push_back({.size = 1 + random() % 9, .birth = 0, .length = 12});
    const Conflicts conflicts(problem);
    std::vector<Answer> answers;
    for (const bool keep_whole : {false, true}) {
      const Strip strip = strip_of(conflicts, keep_whole);
      REQUIRE(strip.bottom.empty() == keep_whole);
      ExactSearch exact(strip, lower_bound(problem), 1);
      std::uint64_t nodes = 1'000'000;
      answers.push_back(exact.run(nodes, nullptr));
      (keep_whole ? among : below) += 1'000'000 - nodes;
    }
    REQUIRE(answers[0] == answers[1]);
  }
  CAPTURE(below, among);
  REQUIRE(below < among);
}

TEST_CASE("Exact search by itself ends at once where all is beyond its reach", "[place][exact]") {
  std::mt19937_64 random(1);
  Problem problem;
  for (std::size_t i = 0; i < 21000; ++i) {
    problem.buffers.push_back(
        {.size = 1 + random() % 1000, .birth = random() % 6000, .length = 1 + random() % 600});
  }
  const Conflicts conflicts(problem);
  StripSearch search(*make_strips(conflicts), problem.buffers.size(), {.dives = false});
  search.start(nullptr, "");
  REQUIRE(search.packing().high_water_mark > search.bound());
  REQUIRE(search.exhausted());
  const Placement placement =
      place_buffers(problem, {.engine = "exact", .time_limit_seconds = kForever});
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  REQUIRE(placement.iterations == 1);
}
