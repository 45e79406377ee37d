// Steps that can go several ways, made from public instances and recorded runs.

#include "tests/place/tries.h"

#include "csrc/place/problem/conflicts.h"
#include "tests/catch.h"
#include "tests/place/instances.h"

#include <limits>
#include <string>

using namespace berth;
using berth::test::instance;
using berth::test::make_joined;
using berth::test::make_try;
using berth::test::TryShape;

namespace {

// Pair by pair, so for a few thousand buffers.
bool is_legal(const Problem& problem, const Placement& placement) {
  const place::Conflicts conflicts(problem);
  for (place::Index i = 0; i < conflicts.size(); ++i) {
    for (place::Index j = 0; j < i; ++j) {
      const Bytes a = placement.offsets[i], b = placement.offsets[j];
      if (a < b + conflicts.bytes(j) && b < a + conflicts.bytes(i) && conflicts.conflict(i, j))
        return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("Steps that can go several ways are packed close to their bound",
          "[place][branch][tries]") {
  const TryShape shapes[] = {
      {.branches = 3, .fork = 0},                                  // shapes vary from the start
      {.branches = 4, .fork = 0.3},                                // within the forward pass
      {.branches = 4, .fork = 0.9, .least = 0.8},                  // after most of the step
      {.branches = 4, .fork = 0.3, .turn = 0.4},                   // much wraps around
      {.branches = 4, .fork = 0.1, .spread = 0.15, .least = 0.9},  // branches of branches
      {.branches = 3, .fork = 0.2, .spread = 0.2, .least = 0.9, .turn = 0.3}};
  double packed = 0, greedy = 0;
  for (const char* name : {"somas_resnet50", "minimalloc_K.1048576"}) {
    for (std::size_t s = 0; s < std::size(shapes); ++s) {
      CAPTURE(name, s);
      const Problem problem = make_try(instance(name), shapes[s], 1);
      PlaceOptions options{.time_limit_seconds = std::numeric_limits<double>::infinity(),
                           .iteration_budget = 150};
      const Placement placement = place_buffers(problem, options);
      REQUIRE(is_legal(problem, placement));
      CHECK(placement.gap() < 0.006);
      packed += placement.gap();
      options.engine = "first_fit";
      options.iteration_budget = 17;
      greedy += place_buffers(problem, options).high_water_mark * 1.0 /
                    static_cast<double>(placement.lower_bound) -
                1;
    }
  }
  CAPTURE(packed, greedy);
  REQUIRE(packed < greedy / 20);
}

TEST_CASE("A folded instance whose largest load is too low is proven by a clique of arcs",
          "[place][bound][arc]") {
  const Problem problem = berth::test::fold(instance("somas_tiny_bert"), 16);
  const Placement placement = place_buffers(
      problem,
      {.time_limit_seconds = std::numeric_limits<double>::infinity(), .iteration_budget = 60});
  REQUIRE(is_legal(problem, placement));
  REQUIRE(placement.proven_optimal);
  REQUIRE(placement.high_water_mark == 589037676);
  REQUIRE(lower_bound(problem) < placement.high_water_mark * 97 / 100);
}

TEST_CASE("Lanes that edges join are packed close to their heaviest cut", "[place][lane][tries]") {
  double packed = 0, greedy = 0;
  int proven = 0;
  for (const char* name : {"somas_resnet50", "minimalloc_K.1048576"}) {
    for (const std::uint64_t points : {4u, 32u}) {
      for (const bool turns : {false, true}) {
        CAPTURE(name, points, turns);
        const Problem problem = make_joined(instance(name), points, turns ? 10 : 33, turns);
        PlaceOptions options{.time_limit_seconds = std::numeric_limits<double>::infinity(),
                             .iteration_budget = 120};
        const Placement placement = place_buffers(problem, options);
        REQUIRE(is_legal(problem, placement));
        packed += placement.gap();
        proven += placement.proven_optimal ? 1 : 0;
        options.engine = "first_fit";
        options.iteration_budget = 17;
        greedy += static_cast<double>(place_buffers(problem, options).high_water_mark) /
                      static_cast<double>(placement.lower_bound) -
                  1;
      }
    }
  }
  CAPTURE(packed, greedy, proven);
  REQUIRE(proven >= 5);
  REQUIRE(packed < greedy / 20);
}
