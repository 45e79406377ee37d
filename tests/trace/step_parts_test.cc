#include "csrc/trace/step_parts.h"

#include "csrc/trace/step_kinds.h"
#include "tests/catch.h"
#include "tests/support/trace_builder.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

using namespace berth;

namespace {

using Sizes = std::vector<Bytes>;

Sizes part(Bytes unit, std::size_t requests) {
  Sizes sizes;
  for (std::size_t i = 0; i < requests; ++i) sizes.push_back(unit + i % 7);
  return sizes;
}
Sizes row(const std::vector<Sizes>& parts) {
  Sizes sizes;
  for (const Sizes& one : parts) sizes.insert(sizes.end(), one.begin(), one.end());
  return sizes;
}
StepParts of(const std::vector<Sizes>& steps) { return StepParts({steps.begin(), steps.end()}); }
using Cuts = std::vector<std::size_t>;

const Sizes kTrain = part(100, 50), kLarger = part(200, 60), kTest = part(300, 20),
            kOther = part(400, 30);

}  // namespace

TEST_CASE("Steps that end as others do are made of these and of what is left", "[step][kinds]") {
  const std::vector<Sizes> steps = {kTrain, kLarger, row({kTest, kTrain}),
                                    row({kTest, kTest, kTrain}), row({kTest, kLarger})};
  const StepParts parts = of(steps);
  CHECK(parts.tell());
  CHECK(parts.cuts(kTrain).empty());
  CHECK(parts.cuts(steps[2]) == Cuts{20});
  CHECK(parts.cuts(steps[3]) == Cuts{20, 40});
  CHECK(parts.cuts(steps[4]) == Cuts{20});
  // In turns that never came, too, and before a step that never did.
  CHECK(parts.cuts(row({kTest, kTest, kTest, kLarger})) == Cuts{20, 40, 60});
  CHECK(parts.cuts(row({kTest, part(500, 40)})) == Cuts{20});
}

TEST_CASE("Equal parts in a row are told apart", "[step][kinds]") {
  const std::vector<Sizes> steps = {kTrain, kLarger, row({kTest, kTest, kTest, kTrain}),
                                    row({kTest, kTest, kTest, kLarger})};
  const StepParts parts = of(steps);
  CHECK(parts.tell());
  CHECK(parts.cuts(steps[2]) == Cuts{20, 40, 60});
}

TEST_CASE("A step that is made of others once is known as a whole", "[step][kinds]") {
  CHECK(!of({kTrain, row({kTest, kTrain})}).tell());
  CHECK(!of({kTrain, kLarger, kTest}).tell());
  CHECK(!of({}).tell());
  // Unless nothing new is left of it: a mark was missed.
  CHECK(of({kTrain, kTest, row({kTest, kTrain})}).tell());
}

TEST_CASE("A few requests are no part", "[step][kinds]") {
  const Sizes few = part(600, 5);
  const StepParts parts = of({kTrain, few, row({few, kTrain}), row({few, few, kTrain})});
  CHECK(!parts.tell());
  CHECK(parts.cuts(row({few, kTrain})).empty());
}

TEST_CASE("Parts lie one behind the other and are steps or what was left of them",
          "[step][kinds]") {
  std::mt19937 random(GENERATE(range(0, 20)));
  const std::vector<Sizes> words = {kTrain, kLarger, kTest, kOther, part(7, 16)};
  std::vector<Sizes> steps;
  for (int i = 0; i < 40; ++i) {
    Sizes step;
    for (std::size_t left = random() % 4; left > 0; --left) {
      const Sizes& word = words[random() % words.size()];
      step.insert(step.end(), word.begin(), word.end());
    }
    const Sizes& last = words[random() % 2];
    step.insert(step.end(), last.begin(), last.end());
    steps.push_back(step);
  }
  const StepParts parts = of(steps);
  CHECK(parts.tell());
  for (const Sizes& step : steps) {
    std::size_t from = 0;
    Cuts cuts = parts.cuts(step);
    REQUIRE(std::is_sorted(cuts.begin(), cuts.end()));
    cuts.push_back(step.size());
    for (const std::size_t to : cuts) {
      REQUIRE(to > from);
      CHECK(parts.cuts(std::span(step).subspan(from, to - from)).empty());
      from = to;
    }
  }
}

TEST_CASE("Kinds are the parts of steps, however often these came together", "[step][kinds]") {
  test::TraceBuilder builder;
  const auto run = [&](const Sizes& sizes) {
    for (const Bytes bytes : sizes) builder.free(builder.allocate(bytes));
  };
  std::mt19937 random(3);
  StepKinds kinds;
  for (int i = 0; i < 60; ++i) {
    for (std::size_t left = random() % 3; left > 0; --left) run(random() % 2 == 0 ? kTest : kOther);
    run(random() % 2 == 0 ? kTrain : kLarger);
    builder.mark();
    if (i == 5) kinds.learn(builder.trace());  // what is known as a whole by then is so no more
  }
  kinds.learn(builder.trace());
  std::vector<std::size_t> lengths;
  for (const StepKind& kind : kinds.kinds()) lengths.push_back(kind.requests.size());
  std::sort(lengths.begin(), lengths.end());
  CHECK(lengths == std::vector<std::size_t>{20, 30, 50, 60});
}
