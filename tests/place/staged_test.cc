// Forks, lanes that edges join, pins in one of several lanes: where one strip is not enough.

#include "csrc/place/bounds/bounds.h"
#include "csrc/place/bounds/pin_load.h"
#include "csrc/place/fits/first_fit.h"
#include "csrc/place/fits/graph_fit.h"
#include "csrc/place/problem/conflict_graph.h"
#include "csrc/place/stages/staged_search.h"
#include "tests/catch.h"
#include "tests/support/placement_check.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

using namespace berth;
using namespace berth::place;
using berth::test::Execution;

namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

struct Mix {
  bool circle = true;
  std::size_t lanes = 1;
  std::size_t branches = 0;
  std::size_t edges = 0;
  bool pins = false;
  std::size_t buffers = 24;
};

Problem random_mix(std::uint64_t seed, const Mix& mix) {
  std::mt19937_64 random(seed);
  Problem problem;
  problem.lanes.assign(mix.lanes, {.period = mix.circle ? 12u : 0u});
  for (std::uint32_t b = 1; b <= mix.branches; ++b) {
    const auto parent = static_cast<std::uint32_t>(random() % b);
    const std::uint64_t fork = problem.branches[parent].fork + random() % 4;
    problem.branches.push_back(
        {.parent = parent, .fork = fork, .period = mix.circle ? fork + 2 + random() % 9 : 0});
  }
  std::uint64_t shortest = 12;
  for (const PlaceBranch& b : problem.branches) {
    if (b.period != 0) shortest = std::min(shortest, b.period);
  }
  for (std::size_t i = 0; i < mix.buffers; ++i) {
    Buffer buffer{.size = 1 + random() % 9};
    buffer.lane = static_cast<std::uint32_t>(random() % mix.lanes);
    buffer.branch = static_cast<std::uint32_t>(random() % problem.branches.size());
    const PlaceBranch& branch = problem.branches[buffer.branch];
    const std::uint64_t period = branch.period != 0 ? branch.period : 14;
    buffer.birth = branch.fork + random() % (period - branch.fork);
    if (mix.circle && branch.period == 0) buffer.birth %= 12;
    buffer.birth = std::max(buffer.birth, branch.fork);
    buffer.length =
        1 + random() % (random() % 2 == 0 ? std::min<std::uint64_t>(3, shortest) : shortest);
    if (seed % 4 == 0) buffer.alignment = Bytes{1} << random() % 3;
    problem.buffers.push_back(buffer);
  }
  // Edges follow one order of all ticks, so that they never contradict each other.
  for (std::size_t i = 0; i < mix.edges; ++i) {
    PlaceEdge edge;
    edge.from_lane = static_cast<std::uint32_t>(random() % mix.lanes);
    edge.to_lane = static_cast<std::uint32_t>(random() % mix.lanes);
    edge.from_tick = random() % 12;
    edge.to_tick = random() % 12;
    if (edge.to_tick < edge.from_tick) {
      if (!mix.circle) continue;
      edge.delta = 1;
    }
    problem.edges.push_back(edge);
  }
  if (!mix.pins) return problem;
  // Where first fit puts a few of them.
  Problem few = problem;
  few.buffers.resize(mix.buffers / 4);
  const Placement fixed = place_buffers(few, {.engine = "first_fit", .iteration_budget = 1});
  for (std::size_t i = 0; i < few.buffers.size(); ++i)
    problem.buffers[i].pinned = 4 * (seed % 3) + fixed.offsets[i];
  return problem;
}

Mix mix_of(std::uint64_t seed) {
  return {.circle = seed % 2 == 0,
          .lanes = 1 + seed % 3,
          .branches = seed / 2 % 3 == 0 ? 0u : 1 + seed % 4,
          .edges = seed / 3 % 3 == 0 ? 0u : 16u,
          .pins = seed % 5 == 0};
}

// Checks offsets against what conflicts, pair by pair, and against simulated executions.
void check(const Problem& problem, const Placement& placement, std::uint64_t seed) {
  const Conflicts conflicts(problem);
  Bytes mark = 0;
  for (Index i = 0; i < conflicts.size(); ++i) {
    const Bytes offset = placement.offsets[i];
    mark = std::max(mark, offset + conflicts.bytes(i));
    REQUIRE(offset % conflicts.unit(i) == 0);
    if (problem.buffers[i].pinned) REQUIRE(*problem.buffers[i].pinned == offset);
    for (Index j = 0; j < i; ++j) {
      const bool apart = offset + conflicts.bytes(i) <= placement.offsets[j] ||
                         placement.offsets[j] + conflicts.bytes(j) <= offset;
      REQUIRE((apart || !conflicts.conflict(i, j)));
    }
  }
  REQUIRE(placement.high_water_mark == mark);
  REQUIRE(placement.lower_bound <= mark);
  for (std::uint64_t run = 0; run < 2; ++run)
    REQUIRE(Execution(problem, placement.offsets, seed + run).run(60) == std::nullopt);
}

// By trying every order in which buffers stand on those before: for a handful.
Bytes optimum(const Problem& problem) {
  const Conflicts conflicts(problem);
  const std::size_t count = conflicts.size();
  std::vector<Bytes> offsets(count);
  std::vector<bool> placed(count, false);
  Bytes pins = 0;
  std::size_t pinned = 0;
  for (Index i = 0; i < count; ++i) {
    if (const auto& pin = problem.buffers[i].pinned) {
      offsets[i] = *pin;
      placed[i] = true;
      ++pinned;
      pins = std::max(pins, *pin + conflicts.bytes(i));
    }
  }
  Bytes best = ~Bytes{0};
  const std::function<void(std::size_t, Bytes)> extend = [&](std::size_t done, Bytes mark) {
    if (mark >= best) return;
    if (done == count) {
      best = mark;
      return;
    }
    for (Index i = 0; i < count; ++i) {
      if (placed[i]) continue;
      // In the lowest hole: with every order tried some one is best.
      const Bytes size = conflicts.bytes(i);
      Bytes at = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (Index j = 0; j < count; ++j) {
          if (!placed[j] || !conflicts.conflict(i, j)) continue;
          const Bytes end = offsets[j] + conflicts.bytes(j);
          if (at < end && offsets[j] < at + size) {
            at = align_up(end, conflicts.unit(i));
            moved = true;
          }
        }
      }
      placed[i] = true;
      offsets[i] = at;
      extend(done + 1, std::max(mark, at + size));
      placed[i] = false;
    }
  };
  extend(pinned, pins);
  return best;
}

}  // namespace

TEST_CASE("A buffer meets another lane's exactly in its shadow there", "[place][lane][property]") {
  std::size_t pairs = 0, conflicting = 0, loose = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    const bool circle = seed % 2 == 0;
    const Problem problem = random_mix(seed, {.circle = circle, .lanes = 3, .edges = 14});
    const Conflicts conflicts(problem);
    for (Index i = 0; i < conflicts.size(); ++i) {
      for (Index j = 0; j < conflicts.size(); ++j) {
        const Buffer& b = problem.buffers[j];
        if (problem.buffers[i].lane == b.lane) continue;
        const Conflicts::Shadow shadow = conflicts.shadow(i, b.lane);
        Buffer cast{.size = 1, .birth = shadow.birth, .length = shadow.length};
        const bool met =
            shadow.length > 0 && berth::test::share_a_tick(problem.lanes[b.lane].period, cast, b);
        const bool conflict = conflicts.conflict(i, j);
        CAPTURE(i, j, shadow.birth, shadow.length);
        if (conflict) REQUIRE(met);
        ++pairs;
        conflicting += conflict ? 1 : 0;
        loose += met && !conflict ? 1 : 0;
      }
    }
  }
  CAPTURE(pairs, conflicting, loose);
  REQUIRE(conflicting < pairs * 97 / 100);
  REQUIRE(loose < pairs / 200);
}

TEST_CASE("The conflict graph lists what conflicts and its first fit is the first fit",
          "[place][first_fit][property]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    const Problem problem = random_mix(seed, mix_of(seed));
    const Conflicts conflicts(problem);
    const auto graph = ConflictGraph::make(conflicts);
    REQUIRE(graph);
    std::size_t pairs = 0;
    for (Index i = 0; i < conflicts.size(); ++i) {
      std::vector<Index> expected;
      for (Index j = 0; j < conflicts.size(); ++j) {
        if (i != j && conflicts.conflict(i, j)) expected.push_back(j);
      }
      std::vector<Index> listed(graph->of(i).begin(), graph->of(i).end());
      std::sort(listed.begin(), listed.end());
      REQUIRE(listed == expected);
      pairs += expected.size();
    }
    if (pairs > 0) REQUIRE_FALSE(ConflictGraph::make(conflicts, pairs / 2 - 1));
    if (conflicts.lanes().group_count() > 1) continue;  // FirstFit takes group after group
    FirstFit fit(conflicts);
    std::vector<Index> order(conflicts.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(seed)));
    const auto expected = fit.run(order, Fit::kFirst, kMaxBytes, nullptr);
    const auto found = first_fit(*graph, order, kMaxBytes, nullptr);
    REQUIRE(found);
    REQUIRE(*found == expected->offsets);
    REQUIRE_FALSE(first_fit(*graph, order, expected->high_water_mark, nullptr));
  }
}

TEST_CASE("However lanes and branches and edges and pins mix, live buffers share no byte",
          "[place][branch][lane][pin][property]") {
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    CAPTURE(seed);
    const Problem problem = random_mix(seed, mix_of(seed));
    PlaceOptions options{.time_limit_seconds = kForever, .iteration_budget = 70, .seed = seed};
    const Placement placement = place_buffers(problem, options);
    check(problem, placement, seed);
    REQUIRE(placement.iterations <= 70);
    if (seed % 10 != 0) continue;
    options.threads = 3;
    const Placement more = place_buffers(problem, options);
    REQUIRE(more.offsets == placement.offsets);
    REQUIRE(more.iterations == placement.iterations);
    REQUIRE(more.engine == placement.engine);
  }
}

TEST_CASE("What lanes and branches and pins allow is not beaten and mostly found",
          "[place][branch][lane][pin][property]") {
  int found = 0, proven = 0;
  constexpr int kSeeds = 400;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    CAPTURE(seed);
    Mix mix = mix_of(seed);
    mix.buffers = 3 + seed % 4;
    const Problem problem = random_mix(seed, mix);
    const Placement placement = place_buffers(
        problem, {.time_limit_seconds = kForever, .iteration_budget = 70, .seed = seed});
    const Bytes best = optimum(problem);
    REQUIRE(lower_bound(problem) <= best);
    REQUIRE(placement.lower_bound <= best);
    REQUIRE(placement.high_water_mark >= best);
    found += placement.high_water_mark == best ? 1 : 0;
    proven += placement.proven_optimal ? 1 : 0;
  }
  CAPTURE(found, proven);
  REQUIRE(found > kSeeds * 97 / 100);
  REQUIRE(proven > kSeeds * 80 / 100);
}

TEST_CASE("Pins in one of several lanes are planned around by dives", "[place][pin][lane]") {
  // First fit in any of its orders is left behind where a pin divides the bytes.
  int better = 0, worse = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Problem problem{.lanes = {{.period = 200}, {.period = 200}}};
    for (std::uint32_t i = 0; i < 150; ++i) {
      problem.buffers.push_back({.size = 16 * (1 + random() % 40),
                                 .birth = random() % 200,
                                 .length = 1 + random() % 60,
                                 .lane = random() % 4 == 0 ? 1u : 0u});
    }
    problem.buffers.push_back({.size = 64, .birth = 20, .length = 100, .pinned = 1600});
    const PlaceOptions options{.time_limit_seconds = kForever, .iteration_budget = 60};
    PlaceOptions fits = options;
    fits.engine = "first_fit";
    const Placement placement = place_buffers(problem, options),
                    greedy = place_buffers(problem, fits);
    check(problem, placement, seed);
    better += placement.high_water_mark < greedy.high_water_mark ? 1 : 0;
    worse += placement.high_water_mark > greedy.high_water_mark ? 1 : 0;
  }
  CAPTURE(better);
  REQUIRE(worse == 0);
  REQUIRE(better > 30);
}

TEST_CASE("A segment is placed anew while all else stays", "[place][branch]") {
  // Found by search: the first dives leave a gap in one branch, which its own search closes.
  int closed = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Problem problem{.branches = {{}, {.parent = 0, .fork = 40}, {.parent = 0, .fork = 60}}};
    for (std::uint32_t i = 0; i < 160; ++i) {
      const auto branch = static_cast<std::uint32_t>(random() % 3);
      const std::uint64_t fork = problem.branches[branch].fork;
      problem.buffers.push_back({.size = 1 + random() % 1000,
                                 .birth = fork + random() % (100 - fork),
                                 .length = 1 + random() % 40,
                                 .branch = branch});
    }
    const Conflicts conflicts(problem);
    const auto search = StagedSearch::make(conflicts, {.bound = max_load(conflicts)});
    REQUIRE(search);
    search->start(nullptr, "");
    const Bytes first = search->packing().high_water_mark;
    const Budget budget(PlaceOptions{.time_limit_seconds = 1e9});
    for (int wave = 0; wave < 9; ++wave) search->next_wave(100, budget, {});
    REQUIRE(search->packing().high_water_mark <= first);
    closed += search->packing().high_water_mark < first ? 1 : 0;
  }
  REQUIRE(closed > 10);
}

TEST_CASE("Gaps between pins that no buffers fill raise the bound",
          "[place][bound][pin][property]") {
  int higher = 0, reached = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Problem problem{.lanes = {{.period = seed % 2 == 0 ? 8u : 0u}}};
    const Bytes unit = 1 + random() % 3;
    for (std::size_t i = 0; i < 2 + random() % 4; ++i)
      problem.buffers.push_back(
          {.size = unit * (2 + random() % 6), .birth = random() % 8, .length = 1 + random() % 8});
    Bytes at = random() % 9;
    for (std::size_t i = 0; i < 1 + random() % 2; ++i) {
      problem.buffers.push_back({.size = 1 + random() % 4,
                                 .birth = random() % 3,
                                 .length = 1 + random() % 5,
                                 .pinned = at});
      at += problem.buffers.back().size + random() % 9;
    }
    const Conflicts conflicts(problem);
    const Strip strip = make_strips(conflicts)->front();
    const Bytes load = max_load(strip), bound = load_around_obstacles(strip, load, 1'000'000);
    const Bytes best = optimum(problem);
    REQUIRE(bound <= best);
    REQUIRE(bound >= load);
    higher += bound > load ? 1 : 0;
    reached += bound > load && bound == best ? 1 : 0;
  }
  CAPTURE(higher, reached);
  REQUIRE(higher > 300);
  REQUIRE(reached > higher / 2);
}

TEST_CASE("A pin above a gap that is too small for anything is proven to lie below all",
          "[place][bound][pin]") {
  // 5 bytes below the pin, and only obstacles of 8.
  Problem problem{.buffers = {{.size = 3, .birth = 0, .length = 9, .pinned = 5}}};
  for (int i = 0; i < 4; ++i) problem.buffers.push_back({.size = 8, .birth = 0, .length = 9});
  const Placement placement = place_buffers(
      problem, {.engine = "dive", .time_limit_seconds = kForever, .iteration_budget = 100});
  REQUIRE(lower_bound(problem) == 35);
  REQUIRE(placement.high_water_mark == 40);
  REQUIRE(placement.proven_optimal);
}
