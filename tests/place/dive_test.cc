#include "csrc/place/dives/dive.h"

#include "csrc/place/bounds/bounds.h"
#include "csrc/place/problem/budget.h"
#include "csrc/place/problem/strip.h"
#include "tests/catch.h"
#include "tests/place/instances.h"
#include "tests/support/placement_check.h"

#include <algorithm>
#include <random>
#include <vector>

using namespace berth;
using namespace berth::place;
using berth::test::check_placement;
using berth::test::instance;

namespace {

// The mark of one dive, or nothing where it gave up; checks every pair.
std::optional<Bytes> dive(const Problem& problem, DiveSettings settings) {
  const Conflicts conflicts(problem);
  const auto strips = make_strips(conflicts);
  REQUIRE(strips);
  REQUIRE(strips->size() == 1);
  const Strip& strip = strips->front();
  if (settings.capacity == 0) settings.capacity = max_load(strip);
  if (settings.below == 0) settings.below = kMaxBytes;
  Dive diver(strip);
  const auto offsets = diver.run(settings, nullptr);
  if (!offsets) return std::nullopt;
  REQUIRE(diver.run(settings, nullptr) == offsets);
  Placement placement;
  placement.offsets.resize(problem.buffers.size());
  for (const auto& [buffer, offset] : strip.bottom) placement.offsets[buffer] = offset;
  for (std::size_t i = 0; i < offsets->size(); ++i)
    placement.offsets[strip.items[i].buffer] = (*offsets)[i];
  for (std::size_t i = 0; i < problem.buffers.size(); ++i)
    placement.high_water_mark =
        std::max(placement.high_water_mark, placement.offsets[i] + conflicts.bytes(Index(i)));
  placement.lower_bound = max_load(conflicts);
  placement.proven_optimal = placement.lower_bound == placement.high_water_mark;
  REQUIRE(check_placement(problem, placement).value_or("") == "");
  return placement.high_water_mark;
}

}  // namespace

TEST_CASE("Sections drop all of time but what conflicts", "[place][strip]") {
  const Problem problem{.buffers = {{.size = 1, .birth = 0, .length = 100},
                                    {.size = 2, .birth = 10, .length = 20},
                                    {.size = 3, .birth = 15, .length = 40},
                                    {.size = 4, .birth = 30, .length = 60}}};
  const Conflicts conflicts(problem);
  const Strip strip = make_strips(conflicts)->front();
  REQUIRE(strip.sections == 2);
  SECTION("what is alive in every section lies at the bottom") {
    REQUIRE(strip.bottom == std::vector<std::pair<Index, Bytes>>{{0, 0}, {2, 1}});
    REQUIRE(strip.base == 4);
  }
  SECTION("the others cover ranges of sections") {
    REQUIRE(strip.items.size() == 2);
    REQUIRE(strip.items[0].first == 0);
    REQUIRE(strip.items[0].last == 1);
    REQUIRE(strip.items[1].first == 1);
    REQUIRE(strip.items[1].last == 2);
  }
  REQUIRE(max_load(strip) == 8);
}

TEST_CASE("A circle of one fold is the line", "[place][strip][arc]") {
  const Problem line = instance("somas_tiny_bert");
  Problem circle = line;
  for (const Buffer& b : line.buffers)
    circle.lanes[0].period = std::max(circle.lanes[0].period, b.birth + b.length + 1);
  REQUIRE(lower_bound(circle) == lower_bound(line));
  REQUIRE(dive(circle, {}) == lower_bound(circle));
}

TEST_CASE("Dives of every rank are legal on lines and rings", "[place][dive][property]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Problem problem;
    const std::uint64_t ticks = 2 + random() % 30;
    problem.lanes[0].period = seed % 2 == 0 ? ticks : 0;
    const std::size_t count = 1 + random() % 60;
    for (std::size_t i = 0; i < count; ++i) {
      Buffer buffer{.size = 1 + random() % 50, .birth = random() % ticks};
      buffer.length =
          1 + random() % (random() % 4 == 0 ? ticks : std::min<std::uint64_t>(ticks, 5));
      if (seed % 5 == 0) buffer.alignment = Bytes{1} << random() % 5;
      problem.buffers.push_back(buffer);
    }
    DiveSettings settings;
    settings.rank = kRanks[random() % std::size(kRanks)];
    settings.noise = random() % 2 == 0 ? 0 : 0.3;
    settings.seed = seed;
    settings.look = seed % 3 == 0 ? 0 : 32;
    const auto mark = dive(problem, settings);
    REQUIRE(mark);
    settings.below = *mark;
    REQUIRE_FALSE(dive(problem, settings));
    settings.below = 0;
    settings.hard = true;
    settings.capacity = *mark;
    if (const auto hard = dive(problem, settings)) REQUIRE(*hard <= *mark);
  }
}

TEST_CASE("Looking ahead helps a dive", "[place][dive]") {
  const Problem problem = instance("minimalloc_C.1048576");
  DiveSettings settings;
  settings.rank = Rank::kTAW;
  settings.look = 0;
  const auto blind = dive(problem, settings);
  settings.look = 300;
  const auto looking = dive(problem, settings);
  REQUIRE(looking < blind);
  REQUIRE(looking == 1039360);
}

TEST_CASE("Noise helps a dive", "[place][dive]") {
  const Problem problem = instance("minimalloc_A.1048576");
  DiveSettings settings;
  const auto plain = dive(problem, settings);
  settings.noise = 0.1;
  auto best = plain;
  for (settings.seed = 1; settings.seed <= 20; ++settings.seed)
    best = std::min(best, dive(problem, settings));
  REQUIRE(best < plain);
}

TEST_CASE("Items that wait again and again do not make a dive slow", "[place][dive][adversarial]") {
  // A staircase of mixed sizes that half of all are alive on: whatever is put wakes what waits.
  // Looked ahead to the end, that is 60 deferrals an item.
  std::mt19937_64 random(1);
  Problem problem;
  constexpr std::uint64_t kCount = 20'000;
  for (std::uint64_t i = 0; i < kCount; ++i)
    problem.buffers.push_back(
        {.size = 64 * (1 + random() % 100), .birth = i, .length = kCount / 2});
  const Conflicts conflicts(problem);
  const Strip strip = make_strips(conflicts)->front();
  Dive diver(strip);
  REQUIRE(diver.run({.capacity = max_load(strip), .below = kMaxBytes}, nullptr));
  CAPTURE(diver.deferrals());
  REQUIRE(diver.deferrals() > 32 * kCount);  // it does wait
  REQUIRE(diver.deferrals() < 34 * kCount);  // and then no longer: some 60 an item else
}
