// Which steps are tried, where tries lead to nothing.
#include "csrc/torch/step/attempts.h"

#include "tests/catch.h"

namespace berth::torch::step {
namespace {

// Tries of so many steps; `works` says of each whether its try leads to something.
template <class Works>
int tries_of(Attempts& attempts, int steps, const Works& works) {
  int tries = 0;
  for (int step = 0; step < steps; ++step) {
    if (!attempts.due()) continue;
    ++tries;
    if (works(step))
      attempts.succeeded();
    else
      attempts.failed();
  }
  return tries;
}

}  // namespace

TEST_CASE("Steps that never repeat are tried more seldom, and found when they repeat",
          "[step][attempts]") {
  Attempts attempts;
  const auto never = [](int) { return false; };
  CHECK(tries_of(attempts, 64, never) == 64);
  // A 17th of the rest, and some on the way there.
  const int later = tries_of(attempts, 1700, never);
  CHECK(later >= 100);
  CHECK(later <= 105);
  // The second try is the first that finds its like.
  int waited = 0, found = 0;
  while (found < 2) {
    ++waited;
    if (!attempts.due()) continue;
    if (found++ == 0)
      attempts.failed();
    else
      attempts.succeeded();
  }
  CHECK(waited <= 2 * 17);
  CHECK(tries_of(attempts, 200, [](int) { return true; }) == 200);
}

TEST_CASE("After a try that led to something distances begin anew", "[step][attempts]") {
  Attempts attempts;
  (void)tries_of(attempts, 1000, [](int) { return false; });
  while (!attempts.due()) continue;
  attempts.succeeded();
  // Its credit, a step apart, two steps apart.
  CHECK(tries_of(attempts, 4 + 2 + 3, [](int) { return false; }) == 4 + 2);
}

TEST_CASE("Where one in five steps is known each is tried", "[step][attempts]") {
  Attempts attempts;
  CHECK(tries_of(attempts, 1000, [](int step) { return step % 5 == 4; }) == 1000);
  Attempts seldom;
  const int tries = tries_of(seldom, 2000, [](int step) { return step % 40 == 39; });
  CHECK(tries > 200);
  CHECK(tries < 1000);
}

TEST_CASE("Steps that cannot be scheduled are tried up to 1,024 steps apart", "[step][attempts]") {
  Attempts attempts;
  int tries = 0;
  for (int step = 0; step < 16 + 2047 + 10 * 1025; ++step) {
    if (!attempts.due()) continue;
    ++tries;
    attempts.refused();
  }
  CHECK(tries >= 16 + 10 + 9);
  CHECK(tries <= 16 + 11 + 11);
  // One of another kind begins anew.
  while (!attempts.due()) continue;
  attempts.failed();
  for (int step = 0; step < 16; ++step) {
    CHECK(attempts.due());
    attempts.refused();
  }
}

}  // namespace berth::torch::step
