#include "csrc/runtime/planner.h"

#include "csrc/plan/file.h"
#include "tests/catch.h"
#include "tests/support/fed_learner.h"
#include "tests/support/temporary_folder.h"

#include <random>
#include <thread>

using namespace berth;
using test::FedLearner;

namespace {

// A step whose placement is improved for long.
std::vector<test::Operation> hard_step(std::size_t requests) {
  std::mt19937 random(11);
  std::vector<test::Operation> step;
  std::vector<std::size_t> live;
  for (std::size_t i = 0; i < requests; ++i) {
    step.push_back({64 * (1 + random() % 1000), 0});
    live.push_back(i);
    while (live.size() > 40) {
      const std::size_t victim = random() % live.size();
      step.push_back({0, live[victim]});
      live[victim] = live.back();
      live.pop_back();
    }
  }
  for (const std::size_t index : live) step.push_back({0, index});
  return step;
}

Learner::Excerpt twice(const std::vector<test::Operation>& step) {
  FedLearner run;
  run.step(step);
  return run.excerpt(run.step(step).value());
}

}  // namespace

TEST_CASE("A planner that is stopped gives up what is under way", "[learn][threads]") {
  // Without a limit of time: were it not cancelled, this test would not end.
  Planner planner({.time_limit_seconds = 1e9, .plan_file = {}, .program = {}});
  planner.submit(twice(hard_step(3000)), Learner::Search::kAtMarks);
  while (!planner.ready()) std::this_thread::yield();
  REQUIRE(planner.busy());
  planner.stop();
  REQUIRE_FALSE(planner.busy());
}

TEST_CASE("A planner publishes plans as they get better, from one search", "[learn][threads]") {
  const test::TemporaryFolder folder;
  Planner planner({.time_limit_seconds = 1e9, .plan_file = folder / "best.plan", .program = {}});
  planner.submit(twice(hard_step(3000)), Learner::Search::kAtMarks);
  Bytes last = ~Bytes{0};
  for (int plans = 0; plans < 2; ++plans) {
    while (!planner.ready()) std::this_thread::yield();
    REQUIRE(planner.busy());
    const auto result = planner.take();
    REQUIRE(result);
    REQUIRE(result->plan->plan().arena_bytes < last);
    last = result->plan->plan().arena_bytes;
  }
  planner.stop();
  REQUIRE(read_plan(folder / "best.plan").arena_bytes <= last);
}

TEST_CASE("A run in which nothing repeats gives no plan", "[learn]") {
  FedLearner run;
  for (std::size_t i = 0; i < 40; ++i) run.step(test::training_step(5 + i));
  Planner planner({.plan_file = {}, .program = {}, .in_place = true});
  planner.submit(run.excerpt(0), Learner::Search::kByPeriod);
  const auto result = planner.take();
  REQUIRE(result);
  REQUIRE(result->plan == nullptr);
}

TEST_CASE("A cycle of more steps than a pattern has is found by its requests", "[learn]") {
  FedLearner run;
  for (std::size_t i = 0; i < 60; ++i) run.step(test::training_step(5 + i % 20));
  Planner planner({.plan_file = {}, .program = {}, .in_place = true});
  planner.submit(run.excerpt(0), Learner::Search::kByPeriod);
  const auto result = planner.take();
  REQUIRE(result);
  REQUIRE(result->plan != nullptr);
  REQUIRE(result->plan->plan().sequences[0].marks.size() == 20);
}

TEST_CASE("What is planned when other steps come is handed back to nobody", "[learn][threads]") {
  Planner planner({.time_limit_seconds = 0.3, .plan_file = {}, .program = {}});
  planner.submit(twice(hard_step(3000)), Learner::Search::kAtMarks);
  planner.forget();
  while (planner.busy()) std::this_thread::yield();
  CHECK_FALSE(planner.ready());
  CHECK_FALSE(planner.take());
}

TEST_CASE("Kinds of steps that were forgotten are in no later plan", "[learn][kinds]") {
  Planner planner({.time_limit_seconds = 0.1, .plan_file = {}, .program = {}, .in_place = true});
  const auto kinds_of = [&](std::size_t layers) {
    FedLearner run;
    for (int i = 0; i < 4; ++i) run.step(test::training_step(layers));
    planner.submit(run.excerpt(0), Learner::Search::kKinds);
    return planner.take().value().kinds.size();
  };
  REQUIRE(kinds_of(5) == 1);
  REQUIRE(kinds_of(8) == 2);
  planner.forget();
  CHECK(kinds_of(11) == 1);
}
