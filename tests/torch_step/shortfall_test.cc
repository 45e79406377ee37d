#include "csrc/torch/step/shortfall.h"

#include "csrc/core/bytes.h"
#include "tests/catch.h"

namespace {

using berth::Bytes;
using berth::torch::step::Shortfall;

constexpr Bytes kWhole = 6400;
constexpr Bytes kWorth = kWhole / 64;

// Steps in a row; whether the last one asked.
bool run(Shortfall& of, unsigned steps, Bytes spilled) {
  bool asked = false;
  for (unsigned n = 0; n < steps; ++n) {
    CHECK_FALSE(asked);
    asked = of.end_step(spilled, spilled, kWhole);
  }
  return asked;
}

}  // namespace

TEST_CASE("A budget that steps go on spilling under is cut by what they spill",
          "[step][shortfall]") {
  Shortfall one;
  CHECK_FALSE(one.end_step(kWhole, kWhole, kWhole));  // what was elsewhere before the schedule
  CHECK(run(one, 3, kWorth));
  CHECK(one.asked());
  CHECK(one.budget(kWhole) == kWhole - kWorth);
  CHECK_FALSE(run(one, 9, kWhole));  // while it is being looked for
  one.end_search(true);
  CHECK_FALSE(one.asked());
  CHECK(one.budget(kWhole) == kWhole - kWorth);
  CHECK_FALSE(run(one, 3, kWorth));
  CHECK(run(one, 1, 2 * kWorth));
  CHECK(one.budget(kWhole) == kWhole - 3 * kWorth);
}

TEST_CASE("Steps that spill little, or once, keep their budget", "[step][shortfall]") {
  Shortfall one;
  CHECK_FALSE(run(one, 40, kWorth / 2));
  CHECK_FALSE(one.end_step(2 * kWorth, 2 * kWorth, kWhole));
  CHECK_FALSE(run(one, 40, 0));
  CHECK(one.budget(kWhole) == kWhole);
}

TEST_CASE("A budget is cut no more where nothing was found within less", "[step][shortfall]") {
  Shortfall one;
  CHECK(run(one, 4, kWorth));
  one.end_search(false);
  CHECK(one.budget(kWhole) == kWhole);
  CHECK_FALSE(run(one, 40, kWorth));
}

TEST_CASE("A budget is cut three times at most, and never below its half", "[step][shortfall]") {
  Shortfall one;
  for (int n = 0; n < 3; ++n) {
    CHECK(run(one, 4, kWorth));
    one.end_search(true);
  }
  CHECK_FALSE(run(one, 40, kWorth));
  CHECK(one.budget(kWhole) == kWhole - 3 * kWorth);
  Shortfall other;
  CHECK_FALSE(run(other, 40, kWhole / 2 + 1));
  CHECK(run(other, 3, kWhole / 2));
  CHECK(other.budget(kWhole) == kWhole / 2);
}

TEST_CASE("A budget is cut by what steps lack at a time, not by all that they spill",
          "[step][shortfall]") {
  Shortfall one;
  for (int n = 0; n < 3; ++n) CHECK_FALSE(one.end_step(4 * kWhole, 3 * kWorth, kWhole));
  CHECK(one.end_step(4 * kWhole, 2 * kWorth, kWhole));
  CHECK(one.budget(kWhole) == kWhole - 3 * kWorth);
  one.end_search(true);
  for (int n = 0; n < 3; ++n) CHECK_FALSE(one.end_step(kWorth, kWhole, kWhole));  // of steps before
  CHECK(one.end_step(kWorth, kWhole, kWhole));
  CHECK(one.budget(kWhole) == kWhole - 4 * kWorth);
}
