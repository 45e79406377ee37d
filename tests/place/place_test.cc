#include "tests/catch.h"
#include "tests/support/placement_check.h"

#include <berth/error.h>
#include <berth/place.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

using namespace berth;
using berth::test::check_placement;
using berth::test::Execution;
using berth::test::optimal_high_water_mark;
using Catch::Matchers::Contains;

namespace {

Problem random_problem(std::mt19937_64& random, std::size_t count, std::uint64_t period) {
  Problem problem;
  problem.lanes[0].period = period;
  const std::uint64_t ticks = period != 0 ? period : 4 + random() % 20;
  for (std::size_t i = 0; i < count; ++i) {
    Buffer buffer{.size = 1 + random() % 9, .birth = random() % ticks};
    const std::uint64_t longest = random() % 3 == 0 ? ticks : 4;
    buffer.length = 1 + random() % longest;
    if (period != 0) buffer.length = std::min(buffer.length, period);
    problem.buffers.push_back(buffer);
  }
  return problem;
}

// Of which the first dive leaves a gap: sizes beside the load.
Problem hard_problem() {
  std::mt19937_64 random(2);
  Problem problem;
  for (std::size_t i = 0; i < 200; ++i) {
    problem.buffers.push_back(
        {.size = 1 + random() % 100, .birth = random() % 400, .length = 1 + random() % 40});
  }
  return problem;
}

}  // namespace

TEST_CASE("A buffer may start where one that died at the same tick ended", "[place]") {
  const Problem problem{
      .buffers = {{.size = 8, .birth = 0, .length = 7}, {.size = 8, .birth = 7, .length = 2}}};
  const Placement placement = place_buffers(problem);
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  REQUIRE(placement.high_water_mark == 8);
  REQUIRE(placement.proven_optimal);
}

TEST_CASE("A problem without buffers has an empty placement and it is optimal", "[place]") {
  const Placement placement = place_buffers(Problem{});
  REQUIRE(placement.offsets.empty());
  REQUIRE(placement.high_water_mark == 0);
  REQUIRE(placement.proven_optimal);
  REQUIRE(placement.gap() == 0.0);
}

TEST_CASE("An arc that wraps around meets those born at the start of the period", "[place][arc]") {
  const Problem problem{.buffers = {{.size = 4, .birth = 8, .length = 5},
                                    {.size = 4, .birth = 2, .length = 3},
                                    {.size = 4, .birth = 3, .length = 5}},
                        .lanes = {{.period = 10}}};
  REQUIRE(lower_bound(problem) == 8);
  const Placement placement = place_buffers(problem);
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  REQUIRE(placement.high_water_mark == 8);
}

TEST_CASE("Three arcs of two thirds of a circle need three places", "[place][arc]") {
  const Problem problem{.buffers = {{.size = 1, .birth = 0, .length = 4},
                                    {.size = 1, .birth = 2, .length = 4},
                                    {.size = 1, .birth = 4, .length = 4}},
                        .lanes = {{.period = 6}}};
  REQUIRE(lower_bound(problem) == 2);
  const Placement placement = place_buffers(problem, {.iteration_budget = 100});
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  REQUIRE(placement.high_water_mark == 3);
}

TEST_CASE("Offsets are multiples of the larger alignment and sizes of the problem's",
          "[place][alignment]") {
  const Problem problem{.buffers = {{.size = 3, .birth = 0, .length = 2},
                                    {.size = 5, .alignment = 32, .birth = 0, .length = 2},
                                    {.size = 9, .alignment = 2, .birth = 1, .length = 2}},
                        .alignment = 8};
  const Placement placement = place_buffers(problem);
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  REQUIRE(placement.lower_bound == 8 + 8 + 16);
}

TEST_CASE("Lanes without edges never share bytes", "[place][lane]") {
  const Problem problem{.buffers = {{.size = 8, .birth = 0, .length = 1},
                                    {.size = 4, .birth = 5, .length = 1, .lane = 1}},
                        .lanes = {{.period = 10}, {.period = 10}}};
  const Placement placement = place_buffers(problem);
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  REQUIRE(placement.high_water_mark == 12);
  REQUIRE(placement.lower_bound == 12);
}

TEST_CASE("Lanes share bytes where edges prove the order both ways", "[place][lane]") {
  Problem problem{.buffers = {{.size = 8, .birth = 0, .length = 2},
                              {.size = 8, .birth = 4, .length = 2, .lane = 1}},
                  .lanes = {{.period = 10}, {.period = 10}},
                  .edges = {{.from_lane = 0, .from_tick = 2, .to_lane = 1, .to_tick = 4}}};
  SECTION("one edge orders one step only") {
    REQUIRE(place_buffers(problem).high_water_mark == 16);
  }
  SECTION("with the way back they share") {
    problem.edges.push_back(
        {.from_lane = 1, .from_tick = 6, .to_lane = 0, .to_tick = 0, .delta = 1});
    const Placement placement = place_buffers(problem);
    REQUIRE(placement.high_water_mark == 8);
    REQUIRE(Execution(problem, placement.offsets, 1).run(8) == std::nullopt);
  }
  SECTION("an edge before the end proves nothing") {
    problem.edges = {{.from_lane = 0, .from_tick = 1, .to_lane = 1, .to_tick = 4},
                     {.from_lane = 1, .from_tick = 6, .to_lane = 0, .to_tick = 0, .delta = 1}};
    REQUIRE(place_buffers(problem).high_water_mark == 16);
  }
  SECTION("on lines one edge is enough") {
    problem.lanes = {{}, {}};
    REQUIRE(place_buffers(problem).high_water_mark == 8);
  }
}

TEST_CASE("Two lanes that take turns need little more than one", "[place][lane]") {
  // Each lane has its large obstacles while the other has small ones; they meet between turns.
  Problem problem{.lanes = {{.period = 400}, {.period = 400}}};
  std::mt19937_64 random(5);
  for (std::uint64_t i = 0; i < 400; ++i) {
    for (std::uint32_t lane = 0; lane < 2; ++lane) {
      const std::uint64_t largest = (i / 20 + lane) % 2 == 0 ? 100 : 5;
      const Bytes size = 64 * (1 + random() % largest);
      const std::uint64_t length = 1 + random() % (20 - i % 20);
      problem.buffers.push_back({.size = size, .birth = i, .length = length, .lane = lane});
      if (i % 20 == 0) {
        problem.edges.push_back(
            {.from_lane = lane, .from_tick = i, .to_lane = 1 - lane, .to_tick = i});
      }
    }
  }
  for (std::uint32_t lane = 0; lane < 2; ++lane) {
    problem.edges.push_back(
        {.from_lane = lane, .from_tick = 400, .to_lane = 1 - lane, .to_tick = 0, .delta = 1});
  }
  const Placement joined = place_buffers(problem, {.iteration_budget = 60});
  for (std::uint64_t run = 0; run < 4; ++run)
    REQUIRE(Execution(problem, joined.offsets, run).run(3) == std::nullopt);
  problem.edges.clear();
  const Placement apart = place_buffers(problem, {.iteration_budget = 60});
  REQUIRE(apart.high_water_mark == apart.lower_bound);
  REQUIRE(joined.high_water_mark < apart.high_water_mark * 7 / 10);
}

TEST_CASE("Branches share bytes but for their prefix and what wraps around", "[place][branch]") {
  Problem problem{.buffers = {{.size = 2, .birth = 1, .length = 6},
                              {.size = 8, .birth = 5, .length = 3},
                              {.size = 8, .birth = 4, .length = 3, .branch = 1}},
                  .lanes = {{.period = 10}},
                  .branches = {{}, {.parent = 0, .fork = 4, .period = 8}}};
  SECTION("exclusive parts share, the prefix stays apart") {
    const Placement placement = place_buffers(problem);
    REQUIRE(placement.high_water_mark == 10);
    REQUIRE(placement.offsets[0] != placement.offsets[1]);
    REQUIRE(Execution(problem, placement.offsets, 1).run(20) == std::nullopt);
  }
  SECTION("what wraps around meets every branch") {
    problem.buffers.push_back({.size = 16, .birth = 7, .length = 8, .branch = 1});
    const Placement placement = place_buffers(problem);
    REQUIRE(Execution(problem, placement.offsets, 1).run(20) == std::nullopt);
    REQUIRE(placement.high_water_mark == 26);
  }
}

TEST_CASE("Pinned buffers stay and others go around them", "[place][pin]") {
  const Problem problem{.buffers = {{.size = 4, .birth = 0, .length = 4, .pinned = 4},
                                    {.size = 4, .birth = 0, .length = 4},
                                    {.size = 2, .birth = 1, .length = 1}}};
  const Placement placement = place_buffers(problem);
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  REQUIRE(placement.offsets[0] == 4);
  REQUIRE(placement.high_water_mark == 10);
}

TEST_CASE("Pins of lanes that share nothing are kept clear by all lanes", "[place][pin][lane]") {
  const Problem problem{.buffers = {{.size = 4, .birth = 0, .length = 1},
                                    {.size = 4, .birth = 5, .length = 1, .lane = 1, .pinned = 0}},
                        .lanes = {{}, {}}};
  const Placement placement = place_buffers(problem);
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  REQUIRE(placement.offsets[0] == 4);
}

TEST_CASE("Every illegal problem is refused with the buffer that is wrong", "[place][bad input]") {
  Problem problem{
      .buffers = {{.size = 4, .birth = 0, .length = 4}, {.size = 4, .birth = 0, .length = 4}},
      .lanes = {{.period = 8}}};
  std::string expected;
  SECTION("size 0") {
    problem.buffers[1].size = 0;
    expected = "buffer 1: its size is 0";
  }
  SECTION("huge size") {
    problem.buffers[1].size = kMaxBytes + 1;
    expected = "buffer 1: size 4611686018427387905 exceeds 2^62 bytes";
  }
  SECTION("sums beyond the largest size") {
    problem.buffers[0].size = problem.buffers[1].size = kMaxBytes / 2 + 1;
    expected = "buffer 1: ";
  }
  SECTION("alignment") {
    problem.buffers[1].alignment = 96;
    expected = "buffer 1: alignment 96 is no power of two up to 2^62";
  }
  SECTION("alignment of the problem") {
    problem.alignment = 0;
    expected = "alignment 0 of the problem is no power of two up to 2^62";
  }
  SECTION("empty lifetime") {
    problem.buffers[1].length = 0;
    expected = "buffer 1: its lifetime at tick 0 is empty";
  }
  SECTION("birth behind the period") {
    problem.buffers[1].birth = 8;
    expected = "buffer 1: birth at tick 8 of a period of 8";
  }
  SECTION("longer than the period") {
    problem.buffers[1].length = 9;
    expected = "buffer 1: its lifetime of 9 ticks is longer than the period of 8";
  }
  SECTION("ticks that overflow") {
    problem.lanes[0].period = 0;
    problem.buffers[1].birth = ~std::uint64_t{0};
    expected =
        "buffer 1: its lifetime of 4 ticks from tick 18446744073709551615 exceeds 2^62 ticks";
  }
  SECTION("no such lane") {
    problem.buffers[1].lane = 1;
    expected = "buffer 1: lane 1 of 1 lanes";
  }
  SECTION("no such branch") {
    problem.buffers[1].branch = 7;
    expected = "buffer 1: branch 7 of 1 branches";
  }
  SECTION("born before its branch") {
    problem.branches.push_back({.parent = 0, .fork = 3});
    problem.buffers[1].branch = 1;
    expected = "buffer 1: born at tick 0, before its branch 1 forks at 3";
  }
  SECTION("a branch before its parent") {
    problem.branches = {{.parent = 1}, {}};
    expected = "branch 0: its parent 1 does not come before it";
  }
  SECTION("colliding pins") {
    problem.buffers[0].pinned = 0;
    problem.buffers[1].pinned = 2;
    expected =
        "buffers 0 and 1 are alive together and pinned to shared bytes: 4 bytes at 0 and 4 "
        "bytes at 2";
  }
  SECTION("colliding pins of two lanes") {
    problem.lanes.push_back({.period = 8});
    problem.buffers[0].pinned = 0;
    problem.buffers[1] = {.size = 4, .birth = 5, .length = 1, .lane = 1, .pinned = 3};
    expected = "buffers 0 and 1 are alive together and pinned";
  }
  SECTION("pin that is not aligned") {
    problem.buffers[1].alignment = 8;
    problem.buffers[1].pinned = 4;
    expected = "buffer 1: pin 4 is no multiple of its alignment 8";
  }
  SECTION("pin too high") {
    problem.buffers[1].pinned = kMaxBytes + 1;
    expected = "buffer 1: pin 4611686018427387905 exceeds 2^62 bytes";
  }
  SECTION("sums above a pin") {
    problem.buffers[0].pinned = kMaxBytes - 4;
    expected = "buffer 1: 8 bytes above a pin at 4611686018427387900 exceed 2^62 bytes";
  }
  SECTION("sums of what alignment rounds up") {
    problem.alignment = kMaxBytes / 2;
    problem.buffers.push_back(problem.buffers[1]);
    expected = "buffer 2: 2305843009213693952 bytes aligned to 2305843009213693952 and the";
  }
  SECTION("a period too long") {
    problem.lanes[0].period = (std::uint64_t{1} << 62) + 1;
    expected = "lane 0: a period of 4611686018427387905 ticks exceeds 2^62";
  }
  SECTION("a root that forks") {
    problem.branches[0].fork = 2;
    expected = "branch 0: a root forks at tick 0, not at 2";
  }
  SECTION("a fork before the parent's") {
    problem.branches = {{}, {.parent = 0, .fork = 4}, {.parent = 1, .fork = 3}};
    expected = "branch 2: forks at tick 3, before its parent 1 does at 4";
  }
  SECTION("periods later on a line") {
    problem.lanes = {{}, {}};
    problem.edges = {{.to_lane = 1, .delta = 1}};
    expected = "edge 0: 1 periods later, but lane 0 has no period";
  }
  SECTION("no lane") {
    problem.lanes.clear();
    expected = "a problem has 1 to";
  }
  SECTION("edge to nowhere") {
    problem.edges = {{.to_lane = 3}};
    expected = "edge 0: lane 3 of 1 lanes";
  }
  SECTION("edge behind the period") {
    problem.lanes.push_back({.period = 8});
    problem.edges = {{.from_tick = 9, .to_lane = 1}};
    expected = "edge 0: tick 9 of lane 0 lies behind its period of 8";
  }
  SECTION("edge between a line and a circle") {
    problem.lanes.push_back({});
    problem.edges = {{.to_lane = 1}};
    expected = "edge 0: joins a line and a circle, lanes 0 and 1";
  }
  SECTION("edges that contradict each other") {
    problem.lanes.push_back({.period = 8});
    problem.edges = {{.from_lane = 0, .from_tick = 5, .to_lane = 1, .to_tick = 3},
                     {.from_lane = 1, .from_tick = 5, .to_lane = 0, .to_tick = 2}};
    expected = "edges contradict each other: tick 2 of lane 0 would come before itself";
  }
  try {
    (void)place_buffers(problem);
    FAIL("accepted");
  } catch (const Error& error) {
    REQUIRE(error.kind() == ErrorKind::kUsage);
    REQUIRE(std::string(error.what()).substr(0, expected.size()) == expected);
  }
}

TEST_CASE("Every illegal option is refused", "[place][bad input]") {
  const Problem problem{.buffers = {{.size = 4, .birth = 0, .length = 4}}};
  PlaceOptions options;
  SECTION("unknown engine") { options.engine = "magic"; }
  SECTION("time limit that is no number") {
    options.time_limit_seconds = std::numeric_limits<double>::quiet_NaN();
  }
  SECTION("negative time limit") { options.time_limit_seconds = -1; }
  SECTION("too many threads") { options.threads = 100000; }
  SECTION("warm start of another problem") { options.warm_start = {0, 0}; }
  REQUIRE_THROWS_AS(place_buffers(problem, options), Error);
}

TEST_CASE("Random problems are placed legally and not below the optimum", "[place][property]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const std::size_t count = 1 + random() % 7;
    Problem problem = random_problem(random, count, seed % 2 == 0 ? 12 : 0);
    if (seed % 3 == 0) problem.alignment = 4;
    if (seed % 5 == 0) problem.buffers[0].alignment = 16;
    const Placement placement = place_buffers(problem, {.iteration_budget = 40});
    REQUIRE(check_placement(problem, placement).value_or("") == "");
    const Bytes optimum = optimal_high_water_mark(problem);
    REQUIRE(placement.lower_bound <= optimum);
    REQUIRE(placement.high_water_mark >= optimum);
    REQUIRE(lower_bound(problem) <= placement.lower_bound);
  }
}

TEST_CASE("Whatever paths a program takes, live buffers of branches share no byte",
          "[place][branch][property]") {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Problem problem;
    problem.lanes[0].period = 12;
    const std::size_t branches = 1 + random() % 4;
    for (std::uint32_t b = 1; b <= branches; ++b) {
      const auto parent = static_cast<std::uint32_t>(random() % b);
      const std::uint64_t fork = problem.branches[parent].fork + random() % 4;
      problem.branches.push_back(
          {.parent = parent, .fork = fork, .period = fork + 2 + random() % 9});
    }
    for (int i = 0; i < 24; ++i) {
      Buffer buffer{.size = 1 + random() % 9};
      buffer.branch = static_cast<std::uint32_t>(random() % problem.branches.size());
      const PlaceBranch& branch = problem.branches[buffer.branch];
      const std::uint64_t period = branch.period != 0 ? branch.period : 12;
      buffer.birth = branch.fork + random() % (period - branch.fork);
      // A slot's own next instance must not meet it, whatever path follows.
      std::uint64_t shortest = 12;
      for (const PlaceBranch& b : problem.branches) {
        if (b.period != 0) shortest = std::min(shortest, b.period);
      }
      buffer.length = 1 + random() % shortest;
      problem.buffers.push_back(buffer);
    }
    const Placement placement = place_buffers(problem, {.iteration_budget = 40});
    for (std::uint64_t run = 0; run < 4; ++run)
      REQUIRE(Execution(problem, placement.offsets, seed + run).run(200) == std::nullopt);
  }
}

TEST_CASE("However lanes drift, live buffers of lanes with edges share no byte",
          "[place][lane][property]") {
  std::uint64_t shared = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const bool circle = seed % 2 == 0;
    const std::size_t lanes = 2 + random() % 2;
    Problem problem;
    problem.lanes.assign(lanes, {.period = circle ? 12u : 0u});
    Bytes apart = 0;
    for (int i = 0; i < 24; ++i) {
      Buffer buffer{.size = 1 + random() % 9, .birth = random() % 12, .length = 1 + random() % 3};
      buffer.lane = static_cast<std::uint32_t>(random() % lanes);
      problem.buffers.push_back(buffer);
    }
    // Edges follow one order of all ticks, so that they never contradict each other.
    for (int i = 0; i < 16; ++i) {
      PlaceEdge edge;
      edge.from_lane = static_cast<std::uint32_t>(random() % lanes);
      edge.to_lane = static_cast<std::uint32_t>(random() % lanes);
      edge.from_tick = random() % 12;
      edge.to_tick = random() % 12;
      if (edge.to_tick < edge.from_tick) {
        if (!circle) continue;
        edge.delta = 1;
      }
      problem.edges.push_back(edge);
    }
    const Placement placement = place_buffers(problem, {.iteration_budget = 40});
    for (std::uint64_t run = 0; run < 4; ++run)
      REQUIRE(Execution(problem, placement.offsets, seed + run).run(40) == std::nullopt);
    REQUIRE(placement.lower_bound <= placement.high_water_mark);
    problem.edges.clear();
    apart = lower_bound(problem);
    shared += placement.high_water_mark < apart ? 1 : 0;
  }
  REQUIRE(shared > 10);
}

TEST_CASE("A warm start is never made worse", "[place][warm start]") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const Problem problem = random_problem(random, 40, 20);
    const Placement cold = place_buffers(problem, {.iteration_budget = 60});
    const Placement warm =
        place_buffers(problem, {.iteration_budget = 1, .warm_start = cold.offsets});
    REQUIRE(check_placement(problem, warm).value_or("") == "");
    REQUIRE(warm.high_water_mark <= cold.high_water_mark);
  }
}

TEST_CASE("A cancelled or timed-out run still returns a legal placement", "[place][cancel]") {
  std::mt19937_64 random(1);
  const Problem problem = random_problem(random, 300, 40);
  std::atomic<bool> cancel{true};
  const Placement cancelled = place_buffers(problem, {.cancel = &cancel});
  REQUIRE(check_placement(problem, cancelled) == std::nullopt);
  const Placement timed_out = place_buffers(problem, {.time_limit_seconds = 0});
  REQUIRE(check_placement(problem, timed_out) == std::nullopt);
}

TEST_CASE("A capacity below the bound is proven not to fit", "[place][capacity]") {
  const Problem problem{
      .buffers = {{.size = 8, .birth = 0, .length = 2}, {.size = 8, .birth = 1, .length = 2}}};
  REQUIRE(place_buffers(problem, {.capacity = 15}).proven_infeasible);
  REQUIRE_FALSE(place_buffers(problem, {.capacity = 16}).proven_infeasible);
}

TEST_CASE("A capacity below the bound ends the search at once", "[place][capacity]") {
  // Of 6 bytes at most are alive at a time, yet 7 are needed: dives alone never reach the bound.
  const Problem problem{.buffers = {{.size = 4, .birth = 0, .length = 1},
                                    {.size = 1, .birth = 0, .length = 4},
                                    {.size = 2, .birth = 2, .length = 1},
                                    {.size = 3, .birth = 2, .length = 5},
                                    {.size = 1, .birth = 3, .length = 7},
                                    {.size = 2, .birth = 4, .length = 1},
                                    {.size = 4, .birth = 7, .length = 1}}};
  const PlaceOptions options{.engine = "dive",
                             .time_limit_seconds = std::numeric_limits<double>::infinity(),
                             .iteration_budget = 1000};
  PlaceOptions hopeless = options, tight = options;
  hopeless.capacity = 5;
  tight.capacity = 6;
  REQUIRE(place_buffers(problem, tight).iterations >= 1000);
  const Placement placement = place_buffers(problem, hopeless);
  REQUIRE(placement.proven_infeasible);
  REQUIRE(placement.iterations < 100);
  REQUIRE(check_placement(problem, placement) == std::nullopt);
}

TEST_CASE("Progress is reported at the end with the result", "[place][progress]") {
  std::mt19937_64 random(1);
  const Problem problem = random_problem(random, 50, 0);
  PlaceProgress last;
  PlaceOptions options;
  options.progress = [&](const PlaceProgress& progress) { last = progress; };
  const Placement placement = place_buffers(problem, options);
  REQUIRE(last.high_water_mark == placement.high_water_mark);
  REQUIRE(last.lower_bound == placement.lower_bound);
  REQUIRE(last.engine == placement.engine);
}

TEST_CASE("Every better placement is handed out while the search goes on, the last one at last",
          "[place][progress]") {
  const Problem problem = hard_problem();
  std::vector<Placement> found;
  PlaceOptions options{.iteration_budget = 200};
  options.improved = [&](const Placement& placement) { found.push_back(placement); };
  const Placement placement = place_buffers(problem, options);
  REQUIRE(found.size() > 1);
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i, found[i].high_water_mark, found[i].engine);
    REQUIRE(check_placement(problem, found[i]).value_or("") == "");
    REQUIRE(found[i].lower_bound <= placement.lower_bound);
    if (i > 0) REQUIRE(found[i].high_water_mark < found[i - 1].high_water_mark);
  }
  REQUIRE(found.back().offsets == placement.offsets);
  REQUIRE(found.back().engine == placement.engine);
}

TEST_CASE("What is told of better placements cancels the search or throws out of it",
          "[place][progress]") {
  const Problem problem = hard_problem();
  std::atomic<bool> cancel{false};
  std::size_t found = 0;
  PlaceOptions options{.iteration_budget = 200, .cancel = &cancel};
  options.improved = [&](const Placement&) {
    ++found;
    cancel = true;
  };
  REQUIRE(check_placement(problem, place_buffers(problem, options)) == std::nullopt);
  REQUIRE(found == 1);
  options.improved = [](const Placement&) { throw std::runtime_error("enough"); };
  REQUIRE_THROWS_WITH(place_buffers(problem, options), "enough");
}

TEST_CASE("A program without the integer program says how to get it", "[place][ilp]") {
  for (const char* engine : {"ilp", "ilp_pyramid"}) {
    const Problem problem{.buffers = {{.size = 8, .birth = 0, .length = 2}}};
    try {
      (void)place_buffers(problem, {.engine = engine});
      FAIL("placed");
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::kUsage);
      REQUIRE_THAT(error.what(), Contains("berth::place_ilp") && Contains("berth::use_ilp()"));
    }
  }
}
