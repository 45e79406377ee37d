#include "csrc/plan/verify.h"

#include "csrc/plan/file.h"
#include "tests/catch.h"
#include "tests/plan/plans.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

using namespace berth;
using namespace berth::test;

namespace {

std::string verdict(const Plan& plan) { return verify(plan).value_or("legal"); }

// Two lanes that take turns on the same bytes: lane 0 before its tick 2, lane 1 after it.
Plan taking_turns() {
  return plan_of({sequence(0, {{0, 64, 1}, {64, 64, 1}, {Slot::kUnplanned, 64, 0}}),
                  sequence(1, {{Slot::kUnplanned, 64, 0}, {0, 128, 1}})},
                 {{0, 2, 1, 1, 0}, {1, 2, 0, 0, 1}});
}

}  // namespace

TEST_CASE("A slot may start where a request freed at the same tick ended", "[plan][verify]") {
  REQUIRE(verdict(plan_of({sequence(0, {{0, 64, 1}, {0, 64, 1}})})) == "legal");
}

TEST_CASE("Slots that live together share no byte", "[plan][verify]") {
  REQUIRE(verdict(plan_of({sequence(0, {{0, 128, 2}, {64, 64, 1}})})) ==
          "slot 0 of sequence 0, 128 bytes at 0 over [0, 2), and slot 1 of sequence 0, 64 bytes at "
          "64 over [1, 2), share bytes and live together");
  REQUIRE(verdict(plan_of({sequence(0, {{0, 128, 2}, {128, 64, 1}})})) == "legal");
}

TEST_CASE("A lifetime that wraps around meets the start of the next step", "[plan][verify]") {
  REQUIRE(
      verdict(plan_of({sequence(0, {{0, 64, 1}, {64, 64, 1}, {0, 64, 2}})})) ==
      "slot 2 of sequence 0, 64 bytes at 0 over [2, 4), and slot 0 of sequence 0, 64 bytes at 0 "
      "over [0, 1), share bytes and live together");
  REQUIRE(verdict(plan_of({sequence(0, {{0, 64, 1}, {64, 64, 1}, {0, 64, 1}})})) == "legal");
}

TEST_CASE("A slot may live for the whole period and no longer", "[plan][verify]") {
  REQUIRE(verdict(plan_of({sequence(0, {{0, 64, 1}, {64, 64, 2}})})) == "legal");
  REQUIRE(verdict(plan_of({sequence(0, {{0, 64, 1}, {64, 64, 3}})})) ==
          "slot 1 of sequence 0 lives for 3 of 2 ticks");
}

TEST_CASE("Branches that exclude each other share bytes", "[plan][verify]") {
  const Sequence root = sequence(0, {{0, 64, 3}, {64, 64, 1}, {64, 64, 1}});
  REQUIRE(verdict(plan_of({root, branch(0, 0, 1, {{64, 640, 2}, {704, 64, 1}})})) == "legal");
  REQUIRE(
      verdict(plan_of({root, branch(0, 0, 1, {{0, 64, 1}, {64, 64, 1}})})) ==
      "slot 0 of sequence 0, 64 bytes at 0 over [0, 3), and slot 0 of sequence 1, 64 bytes at 0 "
      "over [1, 2), share bytes and live together");
}

TEST_CASE("What wraps around from one branch meets every path of its lane", "[plan][verify]") {
  const Sequence root = sequence(0, {{0, 64, 1}, {64, 64, 1}, {128, 64, 1}});
  REQUIRE(verdict(plan_of({root, branch(0, 0, 1, {{64, 64, 1}, {64, 64, 2}})})) == "legal");
  REQUIRE(verdict(plan_of({root, branch(0, 0, 1, {{192, 64, 1}, {64, 64, 3}})})) ==
          "slot 1 of sequence 1, 64 bytes at 64 over [2, 5), and slot 1 of sequence 0, 64 bytes at "
          "64 over [1, 2), share bytes and live together");
}

TEST_CASE("A slot on paths of different periods does not wrap around", "[plan][verify]") {
  const auto plan = [](std::uint32_t length, std::vector<Place> own) {
    return plan_of({sequence(0, {{0, 64, length}, {64, 64, 1}, {64, 64, 1}}),
                    branch(0, 0, 1, std::move(own))});
  };
  // A shorter path: there it lives to the end.
  REQUIRE(verdict(plan(3, {{64, 64, 1}})) == "legal");
  // A longer one: its own sequence's end says nothing there.
  REQUIRE(verdict(plan(2, {{64, 64, 1}, {64, 64, 1}, {64, 64, 1}})) == "legal");
  REQUIRE(verdict(plan(3, {{64, 64, 1}, {64, 64, 1}, {64, 64, 1}})) ==
          "slot 0 of sequence 0 lives over [0, 3), on paths of 3 to 4 ticks it cannot wrap around");
  REQUIRE(verdict(plan_of({sequence(0, {{64, 64, 1}, {0, 64, 4}, {64, 64, 1}, {64, 64, 1}}),
                           branch(0, 0, 2, {{64, 64, 1}})})) ==
          "slot 1 of sequence 0 lives over [1, 5), on paths of 3 to 4 ticks it cannot wrap around");
}

TEST_CASE("Lanes without edges share no byte", "[plan][verify]") {
  REQUIRE(verdict(plan_of({sequence(0, {{0, 64, 1}, {64, 64, 1}}),
                           sequence(1, {{128, 64, 1}, {64, 64, 1}})})) ==
          "slot 1 of sequence 0, 64 bytes at 64 over [1, 2), and slot 1 of sequence 1, 64 bytes at "
          "64 over [1, 2), share bytes, and no edges order lanes 0 and 1 there");
}

TEST_CASE("Lanes that edges order both ways on the circle share bytes", "[plan][verify]") {
  REQUIRE(verdict(taking_turns()) == "legal");
}

TEST_CASE("An edge one way alone does not let lanes share bytes", "[plan][verify]") {
  for (std::size_t missing = 0; missing < 2; ++missing) {
    Plan plan = taking_turns();
    plan.edges.erase(plan.edges.begin() + static_cast<std::ptrdiff_t>(missing));
    REQUIRE_THAT(verdict(plan), Catch::Matchers::Contains("no edges order lanes"));
  }
}

TEST_CASE("An edge that comes one tick too early proves nothing", "[plan][verify]") {
  Plan plan = taking_turns();
  plan.edges[0].from_tick = 1;  // slot 1 of lane 0 is not yet freed
  REQUIRE_THAT(verdict(plan), Catch::Matchers::Contains("no edges order lanes"));
  plan = taking_turns();
  plan.edges[0].to_tick = 2;  // slot 1 of lane 1 is born before it waits
  REQUIRE_THAT(verdict(plan), Catch::Matchers::Contains("no edges order lanes"));
}

TEST_CASE("Order passes through a third lane that shares nothing", "[plan][verify]") {
  Plan plan =
      plan_of({sequence(0, {{0, 64, 1}, {64, 64, 1}}), sequence(1, {{192, 64, 1}, {0, 64, 1}}),
               sequence(2, {{128, 64, 1}, {128, 64, 1}})},
              {{0, 1, 2, 0, 0}, {2, 1, 1, 1, 0}, {1, 2, 0, 0, 1}});
  REQUIRE(verdict(plan) == "legal");
  plan.edges[1].from_tick = 0;  // the third lane hands on before it has waited
  REQUIRE_THAT(verdict(plan), Catch::Matchers::Contains("no edges order lanes 0 and 1"));
}

TEST_CASE("Edges that make a lane wait for itself are refused", "[plan][verify]") {
  REQUIRE(verdict(plan_of({sequence(0, {{0, 64, 1}, {0, 64, 1}}), sequence(1, {{64, 64, 1}})},
                          {{0, 2, 1, 0, 0}, {1, 1, 0, 1, 0}})) ==
          "edges make lane 0 wait for itself");
}

TEST_CASE("Two lanes that reuse the same bytes a thousand times each verify without listing pairs",
          "[plan][verify]") {
  // 1,000 turns of lane 0, then 1,000 of lane 1: a million pairs share bytes.
  const std::vector<Place> places(1000, Place{0, 64, 1});
  REQUIRE(verdict(plan_of({sequence(0, places), sequence(1, places)},
                          {{0, 1000, 1, 0, 0}, {1, 1000, 0, 0, 1}})) == "legal");
  REQUIRE(
      verdict(plan_of({sequence(0, places), sequence(1, places)},
                      {{0, 1000, 1, 0, 0}, {1, 999, 0, 0, 1}})) ==
      "slot 0 of sequence 0, 64 bytes at 0 over [0, 1), and slot 999 of sequence 1, 64 bytes at "
      "0 over [999, 1000), share bytes, and no edges order lanes 0 and 1 there");
}

TEST_CASE("Each malformed plan is refused with its reason", "[plan][verify]") {
  struct Case {
    const char* reason;
    std::function<void(Plan&)> change;
  };
  const std::vector<Case> cases = {
      {"alignment 48, it must be a power of two up to 2097152", [](Plan& p) { p.alignment = 48; }},
      {"an arena of 5764607523034234880 bytes, the limit is 4611686018427387904",
       [](Plan& p) { p.arena_bytes = Bytes{5} << 60; }},
      {"an arena of 256 bytes, the slots end at 192", [](Plan& p) { p.arena_bytes = 256; }},
      {"lower bound 200 above the arena's 192 bytes", [](Plan& p) { p.lower_bound = 200; }},
      {"planned in -1 seconds", [](Plan& p) { p.plan_seconds = -1; }},
      {"planned in nan seconds",
       [](Plan& p) { p.plan_seconds = std::numeric_limits<double>::quiet_NaN(); }},
      {"the first of the strings is not the empty one", [](Plan& p) { p.strings = {"conv"}; }},
      {"two lanes have the key 0", [](Plan& p) { p.lane_keys[1] = 0; }},
      {"4097 lanes, the limit is 4096", [](Plan& p) { p.lane_keys.resize(4097); }},
      {"65537 sequences, the limit is 65536", [](Plan& p) { p.sequences.resize(65537); }},
      {"262145 edges, the limit is 262144", [](Plan& p) { p.edges.resize(262145); }},
      {"16777217 marks, the limit is 16777216",
       [](Plan& p) { p.sequences[0].marks.resize(16777217); }},
      {"67108868 bytes of strings, the limit is 67108864",
       [](Plan& p) { p.engine = std::string(67108867, 'x'); }},
      {"sequence 1 is of lane 2, there are 2", [](Plan& p) { p.sequences[1].lane = 2; }},
      {"sequence 1 has parent -2", [](Plan& p) { p.sequences[1].parent = -2; }},
      {"sequence 1 has parent 1, which does not come before it",
       [](Plan& p) { p.sequences[1].parent = 1; }},
      {"sequence 2 of lane 1 has parent 0 of lane 0", [](Plan& p) { p.sequences[2].lane = 1; }},
      {"sequence 1 has no parent, but leaves it at tick 1",
       [](Plan& p) { p.sequences[1].fork = 1; }},
      {"sequence 1 is a second root of lane 0", [](Plan& p) { p.sequences[1].lane = 0; }},
      {"sequence 2 leaves sequence 0 at tick 3, the part of that one is [0, 2)",
       [](Plan& p) { p.sequences[2].fork = 3; }},
      {"sequence 2 has no slots",
       [](Plan& p) {
         p.sequences[2].slots.clear();
         p.sequences[2].period = 1;
       }},
      {"sequence 1 has no slots",
       [](Plan& p) {
         p.sequences[1].slots.clear();
         p.sequences[1].period = 0;
       }},
      {"lane 2 has no sequence", [](Plan& p) { p.lane_keys.push_back(9); }},
      {"lane 0 has no sequence", [](Plan& p) { p.sequences = {p.sequences[1]}; }},
      {"sequence 0 has period 3, it forks at 0 and has 2 slots",
       [](Plan& p) { p.sequences[0].period = 3; }},
      {"mark 0 of sequence 0 is at tick 2: marks ascend below period 2",
       [](Plan& p) { p.sequences[0].marks = {2}; }},
      {"mark 1 of sequence 0 is at tick 0: marks ascend below period 2",
       [](Plan& p) {
         p.sequences[0].marks = {1, 0};
       }},
      {"slot 1 of sequence 0 is born at tick 0, its place is 1",
       [](Plan& p) { p.sequences[0].slots[1].birth = 0; }},
      {"slot 1 of sequence 0 is for 0 bytes, the limit is 4611686018427387904",
       [](Plan& p) { p.sequences[0].slots[1].requested = 0; }},
      {"slot 1 of sequence 0 is for 18446744073709551615 bytes, the limit is 4611686018427387904",
       [](Plan& p) { p.sequences[0].slots[1].requested = ~Bytes{0}; }},
      {"slot 1 of sequence 0 has 128 bytes for 64, rounded up to 64 these are 64",
       [](Plan& p) { p.sequences[0].slots[1].size = 128; }},
      {"slot 1 of sequence 0 has 0 bytes for 64, rounded up to 64 these are 64",
       [](Plan& p) { p.sequences[0].slots[1].size = 0; }},
      {"slot 1 of sequence 0 is for 64 bytes at most and 65 at least",
       [](Plan& p) { p.sequences[0].slots[1].least = 65; }},
      {"slot 0 of sequence 1 lives for 2 of 1 ticks",
       [](Plan& p) { p.sequences[1].slots[0].length = 2; }},
      {"slot 1 of sequence 0 has origin 1, there are 1 strings",
       [](Plan& p) { p.sequences[0].slots[1].origin = 1; }},
      {"slot 1 of sequence 0 lives for 0 of 2 ticks",
       [](Plan& p) { p.sequences[0].slots[1].length = 0; }},
      {"slot 0 of sequence 2 lives for 3 of 2 ticks",
       [](Plan& p) { p.sequences[2].slots[0].length = 3; }},
      {"slot 1 of sequence 0 is at 32, no multiple of 64",
       [](Plan& p) { p.sequences[0].slots[1].offset = 32; }},
      {"slot 1 of sequence 0 of 64 bytes at 192 is out of bounds, the arena has 192",
       [](Plan& p) { p.sequences[0].slots[1].offset = 192; }},
      {"slot 1 of sequence 0 of 64 bytes at 18446744073709551488 is out of bounds, the arena has "
       "192",
       [](Plan& p) { p.sequences[0].slots[1].offset = ~Bytes{127}; }},
      {"edge 0 names lane 2, there are 2",
       [](Plan& p) {
         p.edges = {{2, 0, 1, 0, 0}};
       }},
      {"edge 0 names lane 0, which has branches",
       [](Plan& p) {
         p.edges = {{0, 0, 1, 0, 0}};
       }},
      {"edge 0 names tick 2 of lane 1, which has 1",
       [](Plan& p) {
         p.edges = {{1, 2, 1, 0, 0}};
       }},
      {"edge 0 joins lane 1 to itself",
       [](Plan& p) {
         p.edges = {{1, 0, 1, 0, 0}};
       }},
      {"edge 0 spans 65 steps, the limit is 64",
       [](Plan& p) {
         p.lane_keys.push_back(9);
         p.sequences.push_back(sequence(2, {{Slot::kUnplanned, 64, 0}}));
         p.edges = {{1, 0, 2, 0, 65}};
       }},
  };
  const Plan good = plan_of({sequence(0, {{0, 64, 1}, {0, 64, 1}}), sequence(1, {{128, 64, 1}}),
                             branch(0, 0, 1, {{Slot::kUnplanned, 64, 0}})});
  REQUIRE(verdict(good) == "legal");
  for (const Case& one : cases) {
    Plan plan = good;
    one.change(plan);
    REQUIRE(verdict(plan) == one.reason);
  }
}

TEST_CASE("A plan file with a branch that asks for nothing is refused", "[plan][verify]") {
  // Legal once, and serving made live blocks share bytes.
  REQUIRE_THROWS_WITH(read_plan(std::string(BERTH_TEST_DATA) + "/empty_branch.plan"),
                      Catch::Matchers::Contains("holds no legal plan: sequence 1 has no slots"));
}

TEST_CASE("Paths that are too long altogether are refused", "[plan][verify]") {
  // A long root that many branches leave at its end.
  std::vector<Sequence> sequences = {
      sequence(0, std::vector<Place>(1 << 14, Place{Slot::kUnplanned, 64, 0}))};
  while (sequences.size() < (std::size_t{1} << 14))
    sequences.push_back(branch(0, 0, 1 << 14, {{0, 64, 1}}));
  REQUIRE(verdict(plan_of(sequences)) ==
          "268451839 ticks on all paths together, the limit is 268435456");
  sequences.resize(sequences.size() - 1);
  REQUIRE(verdict(plan_of(sequences)) == "legal");
}

TEST_CASE("A trie deeper than the limit is refused", "[plan][verify]") {
  std::vector<Sequence> sequences = {sequence(0, {{0, 64, 1}})};
  for (std::int32_t parent = 0; parent < 64; ++parent) {
    REQUIRE(verdict(plan_of(sequences)) == "legal");
    sequences.push_back(branch(0, parent, 0, {{0, 64, 1}}));
  }
  REQUIRE(verdict(plan_of(sequences)) == "sequence 64 is at depth 65, the limit is 64");
}

TEST_CASE("More lanes joined by edges than the limit are refused", "[plan][verify]") {
  std::vector<Sequence> sequences;
  std::vector<PlanEdge> edges;
  for (std::uint32_t lane = 0; lane < 65; ++lane) {
    sequences.push_back(sequence(lane, {{64 * lane, 64, 1}}));
    if (lane > 0) edges.push_back({lane - 1, 0, lane, 0, 0});
  }
  REQUIRE(verdict(plan_of(sequences, edges)) == "edges join 65 lanes, the limit is 64");
}

TEST_CASE("More slots than the limit are refused", "[plan][verify]") {
  Plan plan = plan_of({sequence(0, {{0, 64, 1}})});
  plan.sequences[0].slots.resize(Plan::kMaxSlots + 1);
  REQUIRE(verdict(plan) == "16777217 slots, the limit is 16777216");
}

TEST_CASE("A plan covers the step that it was made of", "[plan][verify][step]") {
  const Plan plan = plan_of({sequence(0, {{0, 64, 1}, {64, 100, 2}}),
                             branch(0, 0, 1, {{64, 30, 1}, {Slot::kUnplanned, 500, 0}})});
  Step step;
  step.lanes = {{.key = 0, .period = 2, .marks = {}}};
  step.requests = {{.bytes = 64, .birth = 0, .length = 1}, {.bytes = 100, .birth = 1, .length = 2}};
  const auto covers = [&](const Step& of) { return verify(plan, of).value_or("covered"); };
  REQUIRE(covers(step) == "covered");

  Step other = step;
  other.requests[1].bytes = 99;
  REQUIRE(covers(other) == "request 1 of lane 0 is for 99 bytes, slot 1 of sequence 0 for 100");
  other = step;
  other.requests[0].length = 2;
  REQUIRE(covers(other) == "request 0 of lane 0 lives for 2 ticks, slot 0 of sequence 0 for 1");
  other = step;
  other.requests[1].planned = false;
  REQUIRE(covers(other) == "request 1 of lane 0 outlives the step, slot 1 of sequence 0 does not");
  other = step;
  other.requests.pop_back();
  REQUIRE(covers(other) == "lane 0 of the step has 1 requests, sequence 0 of the plan has 2");
  other = step;
  other.lanes[0].key = 3;
  REQUIRE(covers(other) == "lane 3 of the step is not in the plan");
  other = step;
  other.requests[1].lane = 4;
  REQUIRE(covers(other) == "a request of the step is of lane 4, there are 1");

  // The branch, whose last slot belongs to the pool.
  other = step;
  other.requests[1] = {.bytes = 30, .birth = 1, .length = 1};
  other.requests.push_back({.bytes = 500, .birth = 2, .length = 3, .planned = false});
  REQUIRE(covers(other) == "covered");
}
