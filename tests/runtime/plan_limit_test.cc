#include "csrc/runtime/plan_limit.h"

#include "csrc/trace/step_kinds.h"
#include "tests/catch.h"
#include "tests/support/fed_learner.h"
#include "tests/support/small_plan.h"

#include <algorithm>
#include <optional>
#include <vector>

using namespace berth;
using test::FedLearner, test::sequence_of;

namespace {

// A step that makes one request for itself, and one that it leaves to the next step.
StepKind kind_of(std::uint64_t hash, Bytes own, Bytes left) {
  StepKind kind;
  kind.hash = hash;
  kind.seen = 2;
  kind.requests.resize(2);
  kind.requests[0] = {.bytes = own, .least = own, .length = 1, .seen = 2};
  kind.requests[1] = {
      .bytes = left, .least = left, .length = 1, .wrapped = 1, .seen = 2, .outlives = true};
  return kind;
}

std::size_t planned(const Plan& plan) {
  std::size_t count = 0;
  for (const Sequence& sequence : plan.sequences)
    for (const Slot& slot : sequence.slots) count += slot.planned();
  return count;
}

}  // namespace

TEST_CASE("A cycle whose bound is above the limit leaves to the pool what crosses its end",
          "[learn][limit]") {
  // Of 640 bytes within the step, and of 6,400 over its end.
  const Plan cycle = test::unverified_plan_of({sequence_of({{0, 640, 1}, {0, 6400, 2}})});
  const std::optional<Plan> all = within(cycle, 7040);
  REQUIRE(all);
  CHECK(planned(*all) == 2);
  const std::optional<Plan> some = within(cycle, 7039);
  REQUIRE(some);
  CHECK(some->sequences[0].slots[0].planned());
  CHECK_FALSE(some->sequences[0].slots[1].planned());
  CHECK_FALSE(within(cycle, 639));
}

TEST_CASE("Kinds of steps whose bound is above the limit leave what outlives them, then some go",
          "[learn][limit]") {
  const std::vector<StepKind> kinds = {kind_of(1, 640, 6400), kind_of(2, 1280, 64)};
  const auto frame = [&](Bytes most) { return skeleton_within({kinds.data(), 1}, {}, 64, most); };
  CHECK(planned(frame(kMaxBytes).value().plan) == 2);
  CHECK(planned(frame(640).value().plan) == 1);
  CHECK_FALSE(frame(639));
  const std::optional<KindPlan> both = skeleton_within(kinds, {}, 64, 1280);
  REQUIRE(both);
  CHECK(both->plan.sequences.size() == 2);
  const std::optional<KindPlan> first = skeleton_within(kinds, {}, 64, 640);
  REQUIRE(first);
  CHECK(first->plan.sequences.size() == 1);
}

TEST_CASE("A kind of step that frees nothing of what it finds has its release at its end",
          "[learn][kinds]") {
  // Training frees the gradient after its first request and makes another one. It is there through
  // the evaluation that follows.
  FedLearner run;
  const auto request = [&](Bytes bytes) {
    run.learner.request(++run.last, bytes, 0, 0);
    return run.last;
  };
  trace::BlockId gradient = request(5000);
  for (int round = 0; round < 4; ++round) {
    const trace::BlockId activation = request(1000);
    run.learner.free(gradient);
    gradient = request(5000);
    run.learner.free(activation);
    (void)run.learner.mark(0);
    for (const Bytes bytes : {64, 128, 256}) run.request(bytes);
    (void)run.learner.mark(0);
    run.feed();
  }
  StepKinds kinds;
  kinds.learn(run.excerpt(0).trace({}, 64));
  const auto release_of = [&](std::size_t requests) {
    for (const StepKind& kind : kinds.kinds())
      if (kind.requests.size() == requests) return kind.release;
    return ~std::uint32_t{0};
  };
  CHECK(release_of(2) == 1);
  CHECK(release_of(3) == 3);
}
