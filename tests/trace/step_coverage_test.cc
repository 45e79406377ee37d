#include "csrc/trace/step_coverage.h"

#include "tests/catch.h"
#include "tests/support/trace_builder.h"

using namespace berth;
using test::TraceBuilder;

namespace {

StepCoverage coverage_of_step(const Trace& trace) {
  const auto step = extract_step(trace);
  REQUIRE(step);
  return coverage_of(trace, *step);
}

}  // namespace

TEST_CASE("A run of nothing but its step is covered whole", "[trace][step][coverage]") {
  TraceBuilder t;
  for (int i = 0; i < 6; ++i) {
    for (const Bytes bytes : {100, 200, 100, 300}) t.free(t.allocate(bytes));
    t.mark();
  }
  const StepCoverage coverage = coverage_of_step(t.trace());
  REQUIRE(coverage.share_of_requests() == 1);
  REQUIRE(coverage.share_of_bytes() == 1);
  REQUIRE(coverage.lanes.at(coverage.primary).marks == 6);
}

TEST_CASE("What is no repeat of the step and what the pool serves is not covered",
          "[trace][step][coverage]") {
  TraceBuilder t;
  (void)t.allocate(4000);  // a weight
  for (int i = 0; i < 8; ++i) {
    t.free(t.allocate(100));
    (void)t.allocate(20);  // never freed: it has no place
    t.mark();
  }
  const StepCoverage coverage = coverage_of_step(t.trace());
  REQUIRE(coverage.lanes.at(0).requests == 17);
  REQUIRE(coverage.lanes[0].covered_requests == 8);
  REQUIRE(coverage.lanes[0].bytes == 4960);
  REQUIRE(coverage.lanes[0].covered_bytes == 800);
}

TEST_CASE("A lane that does not repeat with the step is not covered at all",
          "[trace][step][coverage]") {
  TraceBuilder t;
  for (int i = 0; i < 6; ++i) {
    t.free(t.allocate(100));
    t.add(trace::Request{static_cast<trace::BlockId>(1000 + i), static_cast<Bytes>(7 + 3 * i * i),
                         t.lane(5), 0},
          /*thread=*/9);
    t.mark();
  }
  const StepCoverage coverage = coverage_of_step(t.trace());
  REQUIRE(coverage.lanes.size() == 2);
  REQUIRE(coverage.lanes[0].in_step);
  REQUIRE_FALSE(coverage.lanes[1].in_step);
  REQUIRE(coverage.lanes[1].thread == 9);
  REQUIRE(coverage.lanes[1].covered_requests == 0);
  REQUIRE(coverage.share_of_requests() == 0.5);
}

TEST_CASE("Repeats are found though the step begins as it goes on", "[trace][step][coverage]") {
  TraceBuilder t;
  // Each step is 1 1 2: what was taken for a beginning may be the end of another step.
  t.free(t.allocate(1));
  for (int i = 0; i < 5; ++i) {
    for (const Bytes bytes : {1, 1, 2}) t.free(t.allocate(bytes));
    t.mark();
  }
  const StepCoverage coverage = coverage_of_step(t.trace());
  REQUIRE(coverage.lanes.at(0).requests == 16);
  REQUIRE(coverage.lanes[0].covered_requests == 15);
}
