// Plans of several kinds of steps: legal whatever the kinds, and with room for what crosses marks.

#include "csrc/plan/verify.h"
#include "tests/catch.h"
#include "tests/support/random_kinds.h"

#include <algorithm>
#include <random>
#include <vector>

using namespace berth;
using test::planned;
using test::random_kinds;

namespace {

// The slots of a kind, on each path that begins with its requests.
std::vector<std::vector<const Slot*>> ways_of(const Plan& plan, const StepKind& kind) {
  std::vector<std::vector<const Slot*>> ways;
  for (std::size_t s = 0; s < plan.sequences.size(); ++s) {
    if (plan.sequences[s].period < kind.requests.size()) continue;
    std::vector<const Slot*> path(plan.sequences[s].period);
    std::size_t end = path.size();
    for (auto at = static_cast<std::int32_t>(s); at >= 0;) {
      const Sequence& sequence = plan.sequences[static_cast<std::size_t>(at)];
      for (std::size_t tick = sequence.fork; tick < end; ++tick)
        path[tick] = &sequence.slots[tick - sequence.fork];
      end = std::min<std::size_t>(end, sequence.fork);
      at = sequence.parent;
    }
    bool fits = true;
    for (std::size_t k = 0; fits && k < kind.requests.size(); ++k) {
      const StepKind::Request& request = kind.requests[k];
      fits = path[k]->requested == request.bytes && path[k]->planned() == request.planned() &&
             (!request.planned() ||
              path[k]->length >= std::min<std::uint64_t>(request.length, kind.requests.size() - k));
    }
    if (!fits) continue;
    path.resize(kind.requests.size());
    ways.push_back(path);
  }
  return ways;
}

bool apart(const Slot& a, const std::vector<const Slot*>& others) {
  return std::all_of(others.begin(), others.end(), [&](const Slot* b) {
    return !b->planned() || &a == b || a.offset + a.size <= b->offset ||
           b->offset + b->size <= a.offset;
  });
}

}  // namespace

TEST_CASE("Random kinds of steps have a legal plan in which each has a path", "[place][kinds]") {
  std::size_t branches = 0, shared = 0;
  for (unsigned seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const std::vector<StepKind> kinds = random_kinds(random, true);
    const Plan plan = planned(kinds);
    REQUIRE(verify(plan) == std::nullopt);
    for (const StepKind& kind : kinds) REQUIRE_FALSE(ways_of(plan, kind).empty());
    for (const Sequence& sequence : plan.sequences) {
      branches += sequence.parent >= 0;
      shared += sequence.fork;
    }
  }
  REQUIRE(branches > 400);
  REQUIRE(shared > 200);
}

TEST_CASE("What lives through whole steps of others shares no byte with them", "[place][kinds]") {
  for (unsigned seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const std::vector<StepKind> kinds = random_kinds(random, false);
    const Plan plan = planned(kinds);
    for (const StepKind& from : kinds) {
      const std::vector<const Slot*> own = ways_of(plan, from).front();
      for (std::size_t k = 0; k < own.size(); ++k) {
        if (!from.requests[k].outlives || !from.requests[k].planned()) continue;
        for (const StepKind& through : kinds) {
          const std::size_t ticks = through.requests.size();
          if (&through == &from || through.release != ticks) continue;
          if (from.requests[k].behind == 0 && from.requests[k].wrapped < ticks) continue;
          const auto ways = ways_of(plan, through);
          REQUIRE(std::any_of(ways.begin(), ways.end(),
                              [&](const auto& way) { return apart(*own[k], way); }));
        }
      }
    }
  }
}

TEST_CASE("Kinds that exclude each other have the same bytes", "[place][kinds]") {
  // Two kinds of 3 requests each that all live to the end of their step.
  std::vector<StepKind> kinds(2);
  for (std::size_t i = 0; i < 2; ++i) {
    kinds[i].hash = i + 1;
    kinds[i].seen = 2;
    for (std::uint32_t k = 0; k < 3; ++k)
      kinds[i].requests.push_back(
          {.bytes = 64 * (i + 2), .least = 64 * (i + 2), .length = 3 - k, .seen = 2});
  }
  REQUIRE(planned(kinds).arena_bytes == 3 * 192);
  // What the first leaves alive through the second has its own.
  kinds[0].requests[2].outlives = true;
  kinds[0].requests[2].wrapped = kinds[1].release = 3;
  REQUIRE(planned(kinds).arena_bytes == 3 * 192 + 128);
}

TEST_CASE("What kinds leave until others do as they do has the same bytes", "[place][kinds]") {
  // Training frees the gradients of the step before, and makes its own; the other kind does the
  // same after an evaluation, through which they live.
  StepKind train, both;
  const auto add = [](StepKind& kind, Bytes bytes, std::uint32_t length) {
    kind.requests.push_back({.bytes = bytes, .least = bytes, .length = length, .seen = 2});
  };
  for (int k = 0; k < 4; ++k) add(both, 64 * 5, static_cast<std::uint32_t>(4 - k));
  for (StepKind* const kind : {&train, &both}) {
    kind->hash = kind == &train ? 1 : 2;
    kind->seen = 2;
    kind->release = static_cast<std::uint32_t>(kind->requests.size());
    for (int k = 0; k < 8; ++k) add(*kind, 64 * 2, 9);
    for (int k = 0; k < 8; ++k) {
      add(*kind, 64, 1);
      kind->requests.back().outlives = true;
      kind->requests.back().wrapped = 4;  // at most: the evaluation's requests
    }
  }
  for (StepKind* const kind : {&train, &both}) {
    for (std::size_t k = kind->requests.size() - 16; k < kind->requests.size() - 8; ++k)
      kind->requests[k].length = static_cast<std::uint32_t>(16 - (k + 16 - kind->requests.size()));
  }
  const Plan plan = planned({train, both});
  CHECK(verify(plan) == std::nullopt);
  // The evaluation, or a step of training, beside one step's gradients.
  CHECK(plan.arena_bytes == 64 * 4 * 5 + 64 * 8);
}
