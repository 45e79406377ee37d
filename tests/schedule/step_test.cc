// Steps planned through the public headers alone.
#include "tests/catch.h"
#include "tests/support/temporary_folder.h"

#include <berth/error.h>
#include <berth/graph.h>
#include <berth/referee.h>
#include <berth/schedule.h>

#include <atomic>
#include <limits>

using namespace berth;
using Catch::Matchers::Contains;

namespace {

// x -> h -> y; then y -> wide -> small, and h and small -> gradient: h does not fit beside wide.
graph::Graph small_step() {
  return graph::parse_graph(R"({"format": "berth-graph 1",
    "storages": [{"bytes": 100, "class": "input"}, {"bytes": 400, "class": "step"}, {"bytes": 100, "class": "step"},
                 {"bytes": 500, "class": "step"}, {"bytes": 50, "class": "step"}, {"bytes": 50, "class": "step"}],
    "operators": [
      {"name": "grow", "phase": "forward", "alternatives": [{"ns": 10, "workspace": 0, "reads": [[0, 0, 0, 100]], "writes": [[1, 1]]}]},
      {"name": "shrink", "phase": "forward", "alternatives": [{"ns": 20, "workspace": 0, "reads": [[1, 1, 0, 400]], "writes": [[2, 1]]}]},
      {"name": "widen", "phase": "backward", "alternatives": [{"ns": 30, "workspace": 0, "reads": [[2, 1, 0, 100]], "writes": [[3, 1]]}]},
      {"name": "narrow", "phase": "backward", "alternatives": [{"ns": 40, "workspace": 0, "reads": [[3, 1, 0, 500]], "writes": [[4, 1]]}]},
      {"name": "join", "phase": "backward", "alternatives": [{"ns": 50, "workspace": 0, "reads": [[1, 1, 0, 400], [4, 1, 0, 50]], "writes": [[5, 1]]}]}]})",
                            "small");
}

schedule::StepOptions within(Bytes budget) {
  schedule::StepOptions options;
  options.budget = budget;
  options.addresses = true;
  options.time_limit_seconds = std::numeric_limits<double>::infinity();
  options.iteration_budget = 1000;
  return options;
}

}  // namespace

TEST_CASE("A step is planned, judged and kept in files by public headers alone",
          "[schedule][step]") {
  const graph::Graph step = small_step();
  schedule::StepOptions options = within(800);
  int told = 0;
  options.progress = [&told](const schedule::StepProgress& now) {
    ++told;
    CHECK(now.peak <= 800);
  };
  const schedule::StepResult found = schedule::plan_step(step, options);
  CHECK(told > 0);
  REQUIRE(found.schedule);
  CHECK(found.base_peak == 1000);
  CHECK(found.base_ns == 150);
  const graph::Verdict verdict = graph::replay(step, *found.schedule);
  REQUIRE(verdict.violation == "");
  CHECK(verdict.peak <= 800);
  CHECK(verdict.ns == 160);
  CHECK(verdict.recomputed == 1);
  CHECK(verdict.arena == found.addresses->arena_bytes);
  CHECK(found.missing_bytes == 0);

  const test::TemporaryFolder folder;
  graph::write_graph(folder / "x.graph", step);
  graph::write_schedule(folder / "x.schedule", *found.schedule);
  CHECK(graph::read_graph(folder / "x.graph") == step);
  CHECK(graph::read_schedule(folder / "x.schedule") == *found.schedule);
  CHECK_THROWS_AS(graph::write_graph(folder / "no/x.json", step), Error);
}

TEST_CASE("A budget that no schedule fits names the operator and what is missing",
          "[schedule][step]") {
  const schedule::StepResult refused = schedule::plan_step(small_step(), within(450));
  CHECK_FALSE(refused.schedule);
  CHECK(refused.least_budget == 600);
  CHECK(refused.missing_bytes == 150);
  CHECK(refused.largest == "operator 2 (widen)");
  CHECK_THAT(refused.why_not, Contains("operator 2 (widen) needs 600 B alone"));
}

TEST_CASE("A cancelled plan of a step is what there is", "[schedule][step]") {
  const std::atomic<bool> cancelled{true};
  schedule::StepOptions options = within(1000);
  options.cancel = &cancelled;
  const schedule::StepResult found = schedule::plan_step(small_step(), options);
  CHECK((found.schedule.has_value() || !found.why_not.empty()));
  if (found.schedule) CHECK(graph::replay(small_step(), *found.schedule).violation == "");
}
