// First fit as it is run again and again, and orders that get better.

#include "csrc/place/bounds/bounds.h"
#include "csrc/place/dives/dive.h"
#include "csrc/place/exact/exact_search.h"
#include "csrc/place/fits/first_fit.h"
#include "csrc/place/fits/order_search.h"
#include "csrc/place/stages/strip_search.h"
#include "tests/catch.h"
#include "tests/support/placement_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

using namespace berth;
using namespace berth::place;
using berth::test::check_placement;

namespace {

// One lane, a line or a circle, with alignments and pins that collide with none.
Problem random_problem(std::uint64_t seed, std::size_t count, bool pins) {
  std::mt19937_64 random(seed);
  Problem problem;
  const std::uint64_t ticks = 2 + random() % 40;
  problem.lanes[0].period = seed % 2 == 0 ? ticks : 0;
  for (std::size_t i = 0; i < count; ++i) {
    Buffer buffer{.size = 1 + random() % 50, .birth = random() % ticks};
    buffer.length = 1 + random() % (random() % 4 == 0 ? ticks : std::min<std::uint64_t>(ticks, 5));
    if (seed % 3 == 0) buffer.alignment = Bytes{1} << random() % 5;
    problem.buffers.push_back(buffer);
  }
  if (!pins) return problem;
  // Where first fit puts a few of them.
  Problem few = problem;
  few.buffers.resize(count / 4);
  const Placement fixed = place_buffers(few, {.engine = "first_fit", .iteration_budget = 1});
  for (std::size_t i = 0; i < few.buffers.size(); ++i)
    problem.buffers[i].pinned = 2 * 16 + fixed.offsets[i];
  return problem;
}

Strip strip_of(const Conflicts& conflicts) {
  auto strips = make_strips(conflicts);
  REQUIRE(strips);
  return strips->front();
}

// The mark of a strip's items at these offsets, checked pair by pair.
Bytes checked_mark(const Problem& problem, const Strip& strip, const std::vector<Bytes>& offsets) {
  Placement placement;
  placement.offsets.resize(problem.buffers.size());
  for (const auto& [buffer, offset] : strip.bottom) placement.offsets[buffer] = offset;
  for (const Strip::Obstacle& obstacle : strip.obstacles)
    placement.offsets[obstacle.buffer] = obstacle.begin;
  for (std::size_t i = 0; i < offsets.size(); ++i)
    placement.offsets[strip.items[i].buffer] = offsets[i];
  for (std::size_t i = 0; i < problem.buffers.size(); ++i)
    placement.high_water_mark =
        std::max(placement.high_water_mark, placement.offsets[i] + problem.buffers[i].size);
  placement.proven_optimal = placement.high_water_mark == 0;
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  return placement.high_water_mark;
}

}  // namespace

TEST_CASE("First fit of a single lane is that of any lanes", "[place][first_fit][property]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    const Problem problem = random_problem(seed, 1 + seed % 90, seed % 5 == 0);
    Problem more = problem;
    more.lanes.push_back(more.lanes.front());
    const Conflicts single(problem), any(more);
    FirstFit first(single), second(any);
    const std::vector<Bytes> loads = largest_loads(single);
    for (const Order order : kOrders) {
      for (const Fit fit : {Fit::kFirst, Fit::kBest}) {
        const std::vector<Index> sorted = first.sorted(order, loads);
        const auto a = first.run(sorted, fit, kMaxBytes, nullptr);
        const auto b = second.run(sorted, fit, kMaxBytes, nullptr);
        REQUIRE(a->offsets == b->offsets);
        REQUIRE(a->high_water_mark == b->high_water_mark);
        REQUIRE_FALSE(first.run(sorted, fit, a->high_water_mark, nullptr));
      }
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // minutes
TEST_CASE("First fit of a single lane of many buffers is that of any lanes", "[place][first_fit]") {
  // So many that the lists are laid out for memory.
  std::mt19937_64 random(1);
  Problem problem;
  for (std::uint64_t i = 0; i < 201'000; ++i) {
    problem.buffers.push_back({.size = 1 + random() % 1000,
                               .birth = i,
                               .length = 1 + random() % (i % 1000 == 0 ? 5'000 : 10)});
  }
  Problem more = problem;
  more.lanes.push_back({});
  const Conflicts single(problem), any(more);
  FirstFit first(single), second(any);
  const std::vector<Index> sorted = first.sorted(Order::kSize, {});
  const auto a = first.run(sorted, Fit::kFirst, kMaxBytes, nullptr);
  const auto b = second.run(sorted, Fit::kFirst, kMaxBytes, nullptr);
  REQUIRE(a->offsets == b->offsets);
}
#endif

TEST_CASE("First fit in the order of offsets puts nothing higher", "[place][order][property]") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    const Problem problem = random_problem(seed, 60, false);
    const Conflicts conflicts(problem);
    const Strip strip = strip_of(conflicts);
    Dive dive(strip);
    const auto offsets = dive.run({.capacity = max_load(strip), .below = kMaxBytes}, nullptr);
    StripFit fit(strip);
    const auto again = fit.run(order_of(*offsets), Fit::kFirst, kMaxBytes, nullptr);
    for (std::size_t i = 0; i < offsets->size(); ++i) REQUIRE((*again)[i] <= (*offsets)[i]);
  }
}

TEST_CASE("A chain of orders helps and ends no higher than it began", "[place][order][property]") {
  int better = 0;
  for (std::uint64_t seed = 3; seed <= 40; ++seed) {
    CAPTURE(seed);
    const Problem problem = random_problem(seed, 200, false);
    const Conflicts conflicts(problem);
    const Strip strip = strip_of(conflicts);
    StripFit fit(strip);
    std::vector<std::uint32_t> order(strip.items.size());
    std::iota(order.begin(), order.end(), 0);
    const auto offsets = fit.run(order, Fit::kFirst, kMaxBytes, nullptr);
    const Bytes mark = checked_mark(problem, strip, *offsets);
    OrderSearch search(strip);
    const auto chain = search.run(order, *offsets, max_load(strip), seed, 20, nullptr);
    REQUIRE(chain.runs <= 20);
    if (chain.offsets.empty()) continue;
    const Bytes after = checked_mark(problem, strip, chain.offsets);
    REQUIRE(after <= mark);
    REQUIRE(after == chain.mark);
    better += after < mark ? 1 : 0;
  }
  REQUIRE(better > 20);
}

TEST_CASE("Dives and exact search go around pins", "[place][pin][property]") {
  int refuted = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    const Problem problem = random_problem(seed, 4 + seed % 12, true);
    const Conflicts conflicts(problem);
    const Strip strip = strip_of(conflicts);
    REQUIRE_FALSE(strip.obstacles.empty());
    Dive dive(strip);
    const auto offsets = dive.run({.capacity = max_load(strip), .below = kMaxBytes}, nullptr);
    REQUIRE(offsets);
    const Bytes mark = checked_mark(problem, strip, *offsets);
    for (const Bytes capacity : {max_load(strip), (max_load(strip) + mark) / 2, mark}) {
      ExactSearch exact(strip, capacity, 1);
      std::uint64_t nodes = 20000;
      const Answer answer = exact.run(nodes, nullptr);
      if (answer == Answer::kFits)
        REQUIRE(checked_mark(problem, strip, exact.offsets()) <= capacity);
      if (answer == Answer::kRefuted) REQUIRE(capacity < mark);
      refuted += answer == Answer::kRefuted ? 1 : 0;
    }
  }
  REQUIRE(refuted > 10);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // thousands of dives
TEST_CASE("Changing a part of the best dive's noise gets lower than noise drawn anew",
          "[place][noise]") {
  double changed = 0, anew = 0;
  for (std::uint64_t seed = 3; seed <= 4; ++seed) {
    std::mt19937_64 random(seed);
    Problem problem;
    // Sizes and lifetimes over some orders of magnitude.
    const auto log_uniform = [&](unsigned most) {
      return static_cast<std::uint64_t>(
          std::exp2(static_cast<double>(random() % (most * 1000)) / 1000));
    };
    for (int i = 0; i < 800; ++i) {
      problem.buffers.push_back(
          {.size = log_uniform(15), .birth = random() % 3200, .length = log_uniform(12)});
    }
    const Conflicts conflicts(problem);
    for (const bool evolve : {false, true}) {
      StripSearch search({strip_of(conflicts)}, problem.buffers.size(),
                         {.exact = false, .evolve = evolve, .seed = seed});
      search.start(nullptr, "");
      const Budget budget(PlaceOptions{.time_limit_seconds = 1e9});
      while (!search.exhausted() && search.iterations() < 3000) search.next_wave(3000, budget, {});
      const Packing packing = search.packing();
      (evolve ? changed : anew) +=
          static_cast<double>(packing.high_water_mark) / static_cast<double>(search.bound()) - 1;
    }
  }
  CAPTURE(changed, anew);
  CHECK(changed < anew);
}
#endif
