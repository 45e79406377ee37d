// Lower bounds: none lies above the optimum, and each closes a gap that max load leaves.

#include "csrc/place/bounds/bounds.h"

#include "csrc/place/bounds/arc_clique.h"
#include "csrc/place/bounds/lane_cut.h"
#include "tests/catch.h"

#include <berth/place.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

using namespace berth;
using namespace berth::place;

namespace {

// The heaviest set of buffers that all conflict with each other, by trying all.
Bytes heaviest_clique(const Conflicts& conflicts) {
  Bytes best = 0;
  std::vector<Index> members;
  const std::function<void(Index, Bytes)> extend = [&](Index next, Bytes weight) {
    best = std::max(best, weight);
    for (Index i = next; i < conflicts.size(); ++i) {
      if (!std::all_of(members.begin(), members.end(),
                       [&](Index j) { return conflicts.conflict(i, j); }))
        continue;
      members.push_back(i);
      extend(i + 1, weight + conflicts.bytes(i));
      members.pop_back();
    }
  };
  extend(0, 0);
  return best;
}

Problem joined_lanes(std::uint64_t seed, bool circle) {
  std::mt19937_64 random(seed);
  const std::size_t lanes = 2 + random() % 2;
  Problem problem;
  problem.lanes.assign(lanes, {.period = circle ? 12u : 0u});
  for (std::size_t i = 0; i < 5 + random() % 6; ++i) {
    Buffer buffer{.size = 1 + random() % 9, .birth = random() % 12, .length = 1 + random() % 5};
    buffer.lane = static_cast<std::uint32_t>(random() % lanes);
    problem.buffers.push_back(buffer);
  }
  for (std::uint32_t lane = 0; lane < lanes; ++lane)
    problem.buffers.push_back({.size = 1, .birth = 0, .length = 1, .lane = lane});
  for (std::size_t i = 0; i < 4 + random() % 20; ++i) {
    PlaceEdge edge;
    edge.from_lane = static_cast<std::uint32_t>(random() % lanes);
    edge.to_lane = static_cast<std::uint32_t>(random() % lanes);
    edge.from_tick = random() % 13;
    edge.to_tick = random() % 13;
    if (edge.to_tick < edge.from_tick || edge.to_tick == 12) {
      if (!circle) continue;
      edge.to_tick %= 12;
      edge.delta = 1;
    }
    problem.edges.push_back(edge);
  }
  return problem;
}

}  // namespace

TEST_CASE("The heaviest cut of joined lanes is the heaviest set of unordered buffers",
          "[place][bound][lane][property]") {
  int lines = 0, circles = 0, higher = 0;
  for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
    CAPTURE(seed);
    const Problem problem = joined_lanes(seed, seed % 2 == 0);
    const Conflicts conflicts(problem);
    if (conflicts.lanes().group_count() > 1) continue;
    std::vector<std::uint32_t> lanes;
    for (std::uint32_t l = 0; l < problem.lanes.size(); ++l) lanes.push_back(l);
    const Bytes cut = heaviest_cut(conflicts, lanes), clique = heaviest_clique(conflicts);
    REQUIRE(cut <= clique);
    REQUIRE(max_load(conflicts) <= clique);
    if (problem.lanes[0].period == 0) {
      REQUIRE(cut == clique);
      ++lines;
    } else {
      ++circles;
      higher += cut < clique ? 1 : 0;
    }
  }
  CAPTURE(lines, circles, higher);
  REQUIRE(lines > 1000);
  REQUIRE(circles > 1000);
  REQUIRE(higher < circles / 10);
}

TEST_CASE("A cut through joined lanes proves what the load of no lane does",
          "[place][bound][lane]") {
  // Lane 1 works between the two edges only, while lane 0 holds 8.
  const Problem problem{.buffers = {{.size = 8, .birth = 2, .length = 6},
                                    {.size = 5, .birth = 3, .length = 2, .lane = 1},
                                    {.size = 9, .birth = 0, .length = 1}},
                        .lanes = {{}, {}},
                        .edges = {{.from_lane = 0, .from_tick = 1, .to_lane = 1, .to_tick = 3},
                                  {.from_lane = 1, .from_tick = 5, .to_lane = 0, .to_tick = 9}}};
  const Placement placement = place_buffers(problem, {.time_limit_seconds = 0});
  REQUIRE(placement.high_water_mark == 13);
  REQUIRE(placement.proven_optimal);
}

TEST_CASE("The heaviest clique of arcs is found whether or not a section shows it",
          "[place][bound][arc][property]") {
  int hidden = 0;
  for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Problem problem{.lanes = {{.period = 3 + random() % 20}}};
    const std::uint64_t period = problem.lanes[0].period;
    const std::size_t count = 3 + random() % 9;
    for (std::size_t i = 0; i < count; ++i)
      problem.buffers.push_back(
          {.size = 1 + random() % 9, .birth = random() % period, .length = 1 + random() % period});
    const Conflicts conflicts(problem);
    const Strip strip = make_strips(conflicts)->front();
    const Bytes load = max_load(strip), clique = heaviest_clique(conflicts);
    REQUIRE(heaviest_arc_clique(strip, load, 1'000'000) == clique);
    REQUIRE(heaviest_arc_clique(strip, load, 0) == load);
    hidden += clique > load ? 1 : 0;
  }
  REQUIRE(hidden > 400);
}

TEST_CASE("Three arcs that go around together are proven to lie on each other",
          "[place][bound][arc]") {
  // Each covers two thirds, as a hundred others do not; exact search is too far for so many.
  Problem problem{.lanes = {{.period = 3000}}};
  for (const std::uint64_t birth : {0u, 1000u, 2000u})
    problem.buffers.push_back({.size = 1000, .birth = birth, .length = 2000});
  for (std::uint64_t i = 0; i < 1000; ++i)
    problem.buffers.push_back({.size = 1, .birth = 3 * i, .length = 3});
  const Placement placement = place_buffers(
      problem, {.engine = "dive", .time_limit_seconds = 20, .iteration_budget = 1000});
  REQUIRE(placement.lower_bound == 3001);
  REQUIRE(placement.high_water_mark == 3001);
  REQUIRE(placement.iterations < 1000);
}
