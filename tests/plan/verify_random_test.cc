#include "csrc/plan/lookup.h"
#include "csrc/plan/verify.h"
#include "tests/catch.h"
#include "tests/plan/brute_force.h"
#include "tests/plan/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

using namespace berth;
using namespace berth::test;

namespace {

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(engine_() % limit); }
  bool one_in(std::uint32_t n) { return below(n) == 0; }

 private:
  std::mt19937 engine_;
};

std::vector<Place> random_places(Random& random, std::uint32_t count, std::uint32_t period,
                                 std::uint32_t units) {
  std::vector<Place> places;
  for (std::uint32_t k = 0; k < count; ++k) {
    const bool planned = !random.one_in(6);
    // Mostly short lives, so that legal plans with shared bytes are common.
    const std::uint32_t length = random.one_in(3) ? 1 + random.below(period) : 1 + random.below(2);
    places.push_back({planned ? Bytes{64} * random.below(units) : Slot::kUnplanned,
                      Bytes{1} + random.below(128), std::min(length, period)});
  }
  return places;
}

// Up to three lanes of up to five ticks, with branches, or with edges between them.
Plan random_plan(Random& random) {
  const std::uint32_t lanes = 1 + random.below(3);
  const bool with_edges = lanes > 1 && !random.one_in(4);
  const std::uint32_t units = 1 + random.below(lanes > 1 && !with_edges ? 30 : 8);
  std::vector<Sequence> sequences;
  std::vector<std::uint32_t> periods;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    const std::uint32_t period = 1 + random.below(5);
    periods.push_back(period);
    const std::size_t root = sequences.size();
    sequences.push_back(sequence(lane, random_places(random, period, period, units)));
    const std::uint32_t branches = with_edges || random.one_in(3) ? 0 : random.below(4);
    for (std::uint32_t b = 0; b < branches; ++b) {
      const std::size_t parent =
          root + random.below(static_cast<std::uint32_t>(sequences.size() - root));
      const Sequence& of = sequences[parent];
      const std::uint32_t fork = of.fork + random.below(of.period - of.fork + 1);
      const std::uint32_t end = random.one_in(2) ? of.period : fork + random.below(4);
      if (end <= fork) continue;  // no slots
      sequences.push_back(branch(lane, static_cast<std::int32_t>(parent), fork,
                                 random_places(random, end - fork, end, units)));
    }
  }
  std::vector<PlanEdge> edges;
  if (with_edges) {
    const auto tick = [&](std::uint32_t lane) { return random.below(periods[lane] + 1); };
    if (random.one_in(2)) {
      // The lanes take turns: each hands over to the next, the last one to the first of the next
      // step. Each lane's part of the step is what lies between.
      std::vector<std::uint32_t> begins, ends;
      for (std::uint32_t lane = 0; lane < lanes; ++lane) {
        const std::uint32_t x = tick(lane), y = tick(lane);
        begins.push_back(random.one_in(2) ? 0 : std::min(x, y));
        ends.push_back(random.one_in(2) ? periods[lane] : std::max(x, y));
      }
      for (std::uint32_t lane = 0; lane < lanes; ++lane) {
        const std::uint32_t next = (lane + 1) % lanes;
        edges.push_back({lane, ends[lane], next, begins[next], next == 0 ? 1u : 0u});
      }
    }
    const std::uint32_t count = random.below(4);
    for (std::uint32_t e = 0; e < count; ++e) {
      const std::uint32_t from = random.below(lanes);
      const std::uint32_t to = (from + 1 + random.below(lanes - 1)) % lanes;
      edges.push_back({from, tick(from), to, tick(to), random.below(3)});
    }
  }
  return plan_of(std::move(sequences), std::move(edges));
}

// One unit more or less somewhere.
void change_by_one(Random& random, Plan& plan) {
  const bool up = random.one_in(2);
  if (!plan.edges.empty() && random.one_in(2)) {
    PlanEdge& edge = plan.edges[random.below(static_cast<std::uint32_t>(plan.edges.size()))];
    std::uint32_t* const ticks[] = {&edge.from_tick, &edge.to_tick};
    std::uint32_t& tick = *ticks[random.below(2)];
    const std::uint32_t lane = &tick == &edge.from_tick ? edge.from_lane : edge.to_lane;
    for (const Sequence& of : plan.sequences) {
      if (of.lane != lane) continue;
      if (up && tick < of.period) ++tick;
      if (!up && tick > 0) --tick;
    }
    return;
  }
  Sequence& of = plan.sequences[random.below(static_cast<std::uint32_t>(plan.sequences.size()))];
  if (of.slots.empty()) return;
  Slot& slot = of.slots[random.below(static_cast<std::uint32_t>(of.slots.size()))];
  if (!slot.planned()) return;
  switch (random.below(3)) {
    case 0:
      if (up || slot.offset > 0) slot.offset += up ? 64 : -Bytes{64};
      break;
    case 1:
      if (up || slot.size > 64) {
        slot.size += up ? 64 : -Bytes{64};
        slot.requested = slot.size;
      }
      break;
    default:
      if (up || slot.length > 1) slot.length += up ? 1u : -1u;
      break;
  }
  fit(plan);
}

std::string drawing(const Plan& plan) {
  std::string text;
  for (const Sequence& of : plan.sequences) {
    text += fmt::format("lane {} parent {} fork {}:", of.lane, of.parent, of.fork);
    for (const Slot& slot : of.slots) {
      text += slot.planned() ? fmt::format(" {{{}, {}, {}}}", slot.offset, slot.size, slot.length)
                             : " pool";
    }
    text += "\n";
  }
  for (const PlanEdge& edge : plan.edges) {
    text += fmt::format("edge {{{}, {}, {}, {}, {}}}\n", edge.from_lane, edge.from_tick,
                        edge.to_lane, edge.to_tick, edge.delta);
  }
  return text;
}

}  // namespace

TEST_CASE("The verifier and a brute-force run agree on random plans", "[plan][verify][random]") {
  const unsigned seed = 7;
  Random random(seed);
  std::size_t legal = 0, illegal = 0, legal_by_edges = 0, legal_with_branches = 0;
  const auto agree = [&](const Plan& plan) {
    const std::optional<std::string> violation = verify(plan);
    const bool expected = is_legal_by_force(plan);
    if (expected == violation.has_value()) {
      CAPTURE(seed, drawing(plan), violation.value_or("legal"), expected);
      FAIL("the verifier and the run do not agree");
    }
    ++(expected ? legal : illegal);
    if (expected && !plan.edges.empty()) {
      Plan apart = plan;
      apart.edges.clear();
      legal_by_edges += verify(apart).has_value() ? 1 : 0;
    }
    legal_with_branches += expected && plan.sequences.size() > plan.lane_keys.size() ? 1 : 0;
    return expected;
  };
  for (int round = 0; round < 150'000; ++round) {
    Plan plan = random_plan(random);
    for (int changes = 0; agree(plan) && changes < 3; ++changes) change_by_one(random, plan);
  }
  CAPTURE(legal, illegal, legal_by_edges, legal_with_branches);
  REQUIRE(legal > 50'000);
  REQUIRE(illegal > 50'000);
  REQUIRE(legal_by_edges > 5'000);
  REQUIRE(legal_with_branches > 5'000);
}

TEST_CASE("A walk along a path hears of every end of a slot on it", "[plan][lookup]") {
  const unsigned seed = 8;
  Random random(seed);
  std::size_t walks = 0, ends = 0;
  for (int round = 0; round < 20'000; ++round) {
    const Plan plan = random_plan(random);
    if (verify(plan)) continue;
    const PlanLookup lookup(plan);
    for (std::uint32_t last = 0; last < plan.sequences.size(); ++last) {
      // Slots by tick of the path, and the sequences on it.
      const std::uint32_t period = plan.sequences[last].period;
      std::vector<PlanLookup::SlotIndex> slots(period);
      std::vector<std::uint32_t> path;
      std::uint32_t end = period;
      for (auto s = static_cast<std::int32_t>(last); s >= 0;
           s = plan.sequences[static_cast<std::size_t>(s)].parent) {
        path.push_back(static_cast<std::uint32_t>(s));
        const Sequence& of = plan.sequences[path.back()];
        for (std::uint32_t tick = of.fork; tick < end; ++tick) {
          slots[tick] = lookup.first_slot(path.back()) + (tick - of.fork);
        }
        end = std::min(end, of.fork);
      }
      // Three steps: every slot that was born must be heard of when its time is over, not later.
      for (std::uint32_t now = 0; now < 3 * period; ++now) {
        std::vector<PlanLookup::SlotIndex> heard;
        for (const std::uint32_t s : path) {
          const auto of = lookup.ends_at(s, now % period);
          heard.insert(heard.end(), of.begin(), of.end());
        }
        for (std::uint32_t born = 0; born < now; ++born) {
          const PlanLookup::Entry& entry = lookup.entry(slots[born % period]);
          if (entry.cell == PlanLookup::kNone || born + entry.length != now) continue;
          // On a path that is shorter than its own it ends with the step.
          const std::uint32_t own = plan.sequences[lookup.sequence_of(slots[born % period])].period;
          if (own != period && born % period + entry.length >= period) continue;
          ++ends;
          if (std::count(heard.begin(), heard.end(), slots[born % period]) == 1) continue;
          CAPTURE(seed, drawing(plan), last, now, born);
          FAIL("an end was not heard of");
        }
      }
      ++walks;
    }
  }
  CAPTURE(walks, ends);
  REQUIRE(walks > 5'000);
  REQUIRE(ends > 20'000);
}
