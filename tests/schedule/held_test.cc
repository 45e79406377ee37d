#include "csrc/schedule/joint/held.h"

#include "tests/catch.h"
#include "tests/support/random_graph.h"
#include "tests/support/random_schedule.h"

#include <berth/referee.h>
#include <berth/schedule.h>

#include <random>
#include <vector>

namespace berth::schedule {
namespace {

// Four operators that wait for the host each leave 100 bytes, which four others read in turn.
graph::Graph with_barriers() {
  graph::Graph step;
  const auto add = [&](std::vector<graph::StorageId> reads, Bytes makes, bool waits) {
    step.storages.push_back({makes, graph::StorageClass::kStep, trace::RoleKind::kUnknown});
    graph::Operator op;
    op.name = waits ? "barrier" : "op";
    op.phase = waits ? graph::Phase::kForward : graph::Phase::kBackward;
    op.traits.host_sync = waits;
    graph::Alternative taken;
    taken.ns = 10;
    for (const graph::StorageId one : reads)
      taken.reads.push_back({{one, 1}, 0, step.storages[one].bytes});
    taken.writes = {{static_cast<graph::StorageId>(step.storages.size() - 1), 1}};
    op.alternatives = {taken};
    step.operators.push_back(op);
  };
  add({}, 100, true);
  for (graph::StorageId n = 1; n < 4; ++n) add({n - 1}, 100, true);
  add({3}, 10, false);
  for (graph::StorageId n = 5; n < 8; ++n) add({n - 1, 7 - n}, 10, false);
  return step;
}

}  // namespace

TEST_CASE("What runs once leaves bytes that no schedule without copies is below", "[joint][held]") {
  const graph::Graph step = with_barriers();
  REQUIRE(graph::violation(step) == "");
  CHECK(least_budget(step).bytes == 200);
  CHECK(least_with_held(step).bytes == 410);
  StepOptions options;
  options.budget = 400;
  options.iteration_budget = 1000;
  const StepResult refused = plan_step(step, options);
  CHECK_FALSE(refused.schedule);
  CHECK(refused.missing_bytes == 10);
  CHECK(refused.why_not ==
        "operator 4 (op) needs 410 B with what later ones take and no schedule recomputes, the "
        "budget is 400 B: 10 B are missing");
  options.budget = 410;
  CHECK(plan_step(step, options).schedule);
  // With copies it may be on the host.
  options.budget = 400;
  options.rates = graph::CopyRates{1'000'000'000, 1'000'000'000};
  CHECK(plan_step(step, options).schedule);
}

TEST_CASE("No schedule without copies has less at its peak than is held", "[joint][held]") {
  const auto seed = GENERATE(range(1U, 9U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  int judged = 0, more = 0;
  for (int k = 0; k < 400; ++k) {
    CAPTURE(k);
    const graph::Graph step = test::random_graph(random, 1 + random() % 14);
    const Bytes held = least_with_held(step).bytes;
    more += held > least_budget(step).bytes ? 1 : 0;
    const auto schedule = test::RandomSchedule(random, step, false).make(false);
    if (!schedule) continue;
    const graph::Verdict verdict = graph::replay(step, *schedule);
    REQUIRE(verdict.violation == "");
    ++judged;
    REQUIRE(held <= verdict.peak);
  }
  CHECK(judged > 50);
  CHECK(more > 0);
}

}  // namespace berth::schedule
