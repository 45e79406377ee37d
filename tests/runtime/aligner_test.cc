#include "csrc/runtime/aligner.h"

#include "csrc/plan/lookup.h"
#include "csrc/runtime/path.h"
#include "tests/catch.h"

#include <vector>

using namespace berth;

namespace {

// A plan whose requests have these sizes and all live for one tick.
Plan plan_of(const std::vector<Bytes>& sizes) {
  Plan plan;
  plan.lane_keys = {0};
  Sequence sequence;
  sequence.period = static_cast<std::uint32_t>(sizes.size());
  for (std::uint32_t i = 0; i < sizes.size(); ++i) {
    sequence.slots.push_back({.offset = 0,
                              .requested = sizes[i],
                              .size = (sizes[i] + 63) / 64 * 64,
                              .birth = i,
                              .length = 1});
    plan.arena_bytes = std::max(plan.arena_bytes, sequence.slots.back().size);
  }
  plan.sequences = {sequence};
  return plan;
}

struct Fed {
  std::vector<int> served;  // -1: a miss
  std::uint32_t next = 0;
  bool settled = false;
};

// Feeds `sizes` to an aligner that expected index `next`.
Fed feed(const Plan& plan, std::uint32_t next, const std::vector<Bytes>& sizes) {
  const PlanLookup lookup(plan);
  const Path path(lookup, 0);
  Aligner aligner;
  aligner.start(next, path.size());
  Fed fed;
  for (const Bytes size : sizes) {
    const auto served = aligner.feed(size, lookup, path);
    fed.served.push_back(served ? static_cast<int>(*served) : -1);
  }
  fed.next = aligner.next();
  fed.settled = aligner.settled();
  return fed;
}

const Plan kTen = plan_of({100, 200, 300, 400, 500, 600, 700, 800, 900, 1000});

}  // namespace

TEST_CASE("An inserted request is one miss and the position stays", "[align]") {
  const Fed fed = feed(kTen, 3, {77, 400, 500, 600, 700});
  REQUIRE(fed.served == std::vector<int>{-1, 3, 4, 5, 6});
  REQUIRE(fed.settled);
}

TEST_CASE("A removed request costs no miss", "[align]") {
  REQUIRE(feed(kTen, 3, {500, 600, 700, 800}).served == std::vector<int>{4, 5, 6, 7});
}

TEST_CASE("A resized request is one miss", "[align]") {
  REQUIRE(feed(kTen, 3, {444, 500, 600, 700, 800}).served == std::vector<int>{-1, 4, 5, 6, 7});
}

TEST_CASE("Two swapped requests are both served", "[align]") {
  REQUIRE(feed(kTen, 3, {500, 400, 600, 700, 800}).served == std::vector<int>{4, 3, 5, 6, 7});
}

TEST_CASE("An inserted request that looks like one further on does not lead astray", "[align]") {
  const Fed fed = feed(kTen, 1, {700, 200, 300, 400, 500});
  REQUIRE(fed.served == std::vector<int>{-1, 1, 2, 3, 4});
}

TEST_CASE("The step's end is no obstacle", "[align]") {
  REQUIRE(feed(kTen, 9, {77, 1000, 100, 200, 300}).served == std::vector<int>{-1, 9, 0, 1, 2});
  REQUIRE(feed(kTen, 9, {100, 200, 300, 400}).served == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("Requests that are nowhere in the plan end the search", "[align]") {
  const PlanLookup lookup(kTen);
  const Path path(lookup, 0);
  Aligner aligner;
  aligner.start(0, path.size());
  for (std::uint32_t i = 0; i < Aligner::kGiveUp; ++i) {
    REQUIRE_FALSE(aligner.lost());
    REQUIRE_FALSE(aligner.feed(12345, lookup, path).has_value());
  }
  REQUIRE(aligner.lost());
}

TEST_CASE("A plan of one request is searched, too", "[align]") {
  const Plan one = plan_of({100});
  REQUIRE(feed(one, 0, {7, 100, 100}).served == std::vector<int>{-1, 0, 0});
}
