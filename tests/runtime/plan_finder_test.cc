#include "csrc/runtime/plan_finder.h"

#include "tests/catch.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

using namespace berth;

namespace {

using Sizes = std::vector<Bytes>;

// A plan in a folder that has one kind of step.
PlanFolder::Found plan_of(const std::string& file, const Sizes& step, LaneKey lane = 0) {
  PlanHead::Kind kind{.lane_key = lane,
                      .requests = static_cast<std::uint32_t>(step.size()),
                      .hash = 0,
                      .first = step};
  kind.first.resize(std::min(step.size(), PlanHead::kMostFirst));
  return {file, {.program = {}, .kinds = {kind}, .kind_count = 1}};
}

Sizes counting(Bytes from, std::size_t count) {
  Sizes sizes(count);
  std::iota(sizes.begin(), sizes.end(), from);
  return sizes;
}

Sizes operator+(Sizes a, const Sizes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void ask(PlanFinder& finder, const Sizes& sizes, LaneKey lane = 0) {
  for (const Bytes size : sizes) finder.request(lane, size);
}

std::string found(const PlanFinder& finder) {
  return finder.found() == nullptr ? "" : finder.found()->file;
}

}  // namespace

TEST_CASE("A plan is found by its first requests wherever in the run they come",
          "[folder][finder]") {
  const Sizes a = counting(1000, 300), b = counting(5000, 300);
  PlanFinder finder({plan_of("a", a), plan_of("b", b)});
  ask(finder, counting(1, 77));  // the model is made
  ask(finder, {b.begin(), b.begin() + 127});
  REQUIRE(found(finder).empty());
  ask(finder, {b[127]});
  REQUIRE(found(finder) == "b");
}

TEST_CASE("Requests that begin like a plan's and go on otherwise find none", "[folder][finder]") {
  const Sizes a = counting(1000, 300);
  PlanFinder finder({plan_of("a", a)});
  for (std::size_t count = 1; count < 128; ++count) {
    ask(finder, {a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count)});
    ask(finder, {1});
  }
  REQUIRE(found(finder).empty());
}

TEST_CASE("A beginning that overlaps itself is found where it comes", "[folder][finder]") {
  // Eight of one size, then others: the run has nine of them.
  const Sizes step = Sizes(8, 64) + counting(1000, 200);
  PlanFinder finder({plan_of("a", step)});
  ask(finder, Sizes(1, 64) + step);
  REQUIRE(found(finder) == "a");
}

TEST_CASE("Requests of other lanes neither find nor disturb", "[folder][finder]") {
  const Sizes a = counting(1000, 200);
  PlanFinder finder({plan_of("a", a, 7)});
  ask(finder, a, 3);
  REQUIRE(found(finder).empty());
  for (const Bytes size : a) {
    finder.request(7, size);
    finder.request(3, 1);
  }
  REQUIRE(found(finder) == "a");
}

TEST_CASE("Of plans that begin alike the end of the step decides", "[folder][finder]") {
  const Sizes beginning = counting(1000, 150);
  const Sizes a = beginning + counting(1, 50), b = beginning + counting(1, 90);
  PlanFinder finder({plan_of("a", a), plan_of("b", b)});
  SECTION("whose length is the step's") {
    ask(finder, b);
    REQUIRE(found(finder).empty());
    finder.mark();
    REQUIRE(found(finder) == "b");
  }
  SECTION("whose length is nearest to the first step's") {
    ask(finder, a + counting(7, 3));
    finder.mark();
    REQUIRE(found(finder) == "a");
  }
  SECTION("or, without marks, the longest of them") {
    ask(finder, b + b);
    REQUIRE(found(finder) == "b");
  }
}

TEST_CASE("A plan whose step another plan's begins with does not hide it", "[folder][finder]") {
  const Sizes a = counting(1000, 100), b = a + counting(5000, 100);
  PlanFinder finder({plan_of("a", a), plan_of("b", b)});
  SECTION("the longer one comes") {
    ask(finder, b);
    finder.mark();
    REQUIRE(found(finder) == "b");
  }
  SECTION("the shorter one comes") {
    ask(finder, a);
    finder.mark();
    REQUIRE(found(finder) == "a");
  }
  SECTION("the shorter one comes without marks") {
    ask(finder, a + a);
    REQUIRE(found(finder) == "a");
  }
}

TEST_CASE("A short step is found where it ends at a mark, or comes again and again",
          "[folder][finder]") {
  const Sizes step = {64, 128, 64};
  PlanFinder finder({plan_of("a", step)});
  SECTION("at a mark") {
    ask(finder, Sizes{512, 64} + step);
    finder.mark();
    REQUIRE(found(finder) == "a");
  }
  SECTION("again and again") {
    for (int i = 0; i < 21; ++i) ask(finder, step);
    REQUIRE(found(finder).empty());
    ask(finder, step);
    REQUIRE(found(finder) == "a");
  }
  SECTION("and not in passing") {
    ask(finder, Sizes{512} + step + Sizes{512});
    finder.mark();
    REQUIRE(found(finder).empty());
  }
}

TEST_CASE("Each kind of step of a plan finds it", "[folder][finder]") {
  PlanFolder::Found two = plan_of("two", counting(1000, 200));
  two.head.kinds.push_back(plan_of("", counting(3000, 200)).head.kinds[0]);
  PlanFinder finder({plan_of("one", counting(5000, 200)), two});
  ask(finder, counting(3000, 200));
  REQUIRE(found(finder) == "two");
}

TEST_CASE("Each of all the plans that a folder lists is found, by each of its kinds",
          "[folder][finder]") {
  const std::size_t count = PlanFolder::Limits().heads, kinds = PlanHead::kMostKinds;
  // Many begin alike for a while.
  const auto step = [&](std::size_t plan, std::size_t kind) {
    return counting(1000, 40 + plan % 60) + Sizes{1'000'000 + plan} +
           counting(1000 * (kind + 1), 200);
  };
  std::vector<PlanFolder::Found> plans;
  for (std::size_t plan = 0; plan < count; ++plan) {
    PlanFolder::Found found = plan_of("plan " + std::to_string(plan), step(plan, 0));
    for (std::size_t kind = 1; kind < kinds; ++kind)
      found.head.kinds.push_back(plan_of("", step(plan, kind)).head.kinds[0]);
    plans.push_back(found);
  }
  for (std::size_t plan = 0; plan < count; plan += 73) {
    for (const std::size_t kind : {std::size_t{0}, kinds - 1}) {
      PlanFinder finder(plans);
      ask(finder, counting(1, 77) + step(plan, kind));
      finder.mark();
      REQUIRE(found(finder) == "plan " + std::to_string(plan));
    }
  }
}

TEST_CASE("Of plans with requests of any size each is found at its mark", "[folder][finder]") {
  const auto any = [](std::size_t length) {
    return Sizes{64, PlanHead::kAnySize, 128} + counting(1000, length);
  };
  PlanFinder finder(
      {plan_of("a", any(10)), plan_of("b", any(20)), plan_of("c", {PlanHead::kAnySize})});
  const auto came = [&](Bytes size, std::size_t length) {
    ask(finder, Sizes{64, size, 128} + counting(1000, length));
    finder.mark();
    return found(finder);
  };
  REQUIRE(came(7, 15).empty());
  ask(finder, {64, 7, 64});  // of none of them, until the next mark
  ask(finder, counting(1000, 20));
  finder.mark();
  REQUIRE(found(finder).empty());
  REQUIRE(came(9, 20) == "b");
  finder.refuse_found();
  REQUIRE(came(9, 20).empty());
  REQUIRE(came(9, 10) == "a");
}

TEST_CASE("A plan that cannot be had leaves the choice to the others", "[folder][finder]") {
  const Sizes step = counting(1000, 200);
  PlanFinder finder({plan_of("a", step), plan_of("b", step)});
  ask(finder, step);
  finder.mark();
  REQUIRE(found(finder) == "a");
  finder.refuse_found();
  REQUIRE(found(finder) == "b");
  finder.refuse_found();
  REQUIRE(found(finder).empty());
  REQUIRE(finder.over());
}

TEST_CASE("After a plan that cannot be had another is found by the whole of its own beginning",
          "[folder][finder]") {
  const Sizes a = counting(1000, 200), b = counting(5000, 300);
  PlanFinder finder({plan_of("a", a), plan_of("b", b)});
  ask(finder, a);
  REQUIRE(found(finder) == "a");
  finder.refuse_found();
  REQUIRE(found(finder).empty());
  REQUIRE_FALSE(finder.over());
  ask(finder, {b.begin(), b.begin() + 127});
  REQUIRE(found(finder).empty());
  ask(finder, {b[127]});
  REQUIRE(found(finder) == "b");
}

TEST_CASE("A finder that hears nothing it knows gives up", "[folder][finder]") {
  PlanFinder finder({plan_of("a", counting(1000, 200))});
  for (std::uint64_t i = 1; i < PlanFinder::kMostRequests; ++i) finder.request(0, 64);
  REQUIRE_FALSE(finder.over());
  finder.request(0, 64);
  REQUIRE(finder.over());
}

TEST_CASE("Heads that say too little or too much are passed over", "[folder][finder]") {
  PlanFolder::Found empty = plan_of("empty", {});
  PlanFolder::Found forged = plan_of("forged", counting(1000, 100));
  forged.head.kinds[0].requests = 7;
  PlanFinder finder({empty, forged});
  REQUIRE(finder.over());
  finder.request(0, 64);
  finder.mark();
  REQUIRE(found(finder).empty());
}
