#include "csrc/trace/step.h"
#include "tests/catch.h"
#include "tests/support/trace_builder.h"

#include <functional>
#include <set>
#include <tuple>

using namespace berth;
using test::TraceBuilder;

namespace {

using Edge = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

// The edges of five steps of `body`: (from lane, from tick, to lane, to tick, steps later).
std::set<Edge> edges_of(const std::function<void(TraceBuilder&, int)>& body) {
  TraceBuilder t;
  for (int i = 0; i < 5; ++i) {
    body(t, i);
    t.mark();
  }
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  std::set<Edge> edges;
  for (const StepEdge& e : step->edges)
    edges.emplace(e.from_lane, e.from_tick, e.to_lane, e.to_tick, e.delta);
  return edges;
}

// A request freed before the lane's next.
void brief(TraceBuilder& t, std::uint64_t lane) { t.free(t.allocate(1000 * (lane + 1), lane)); }

}  // namespace

TEST_CASE("A lane that waits for an event of another has an edge from it", "[trace][step][edges]") {
  const auto edges = edges_of([](TraceBuilder& t, int) {
    brief(t, 0);
    brief(t, 0);
    t.record(11, 0);
    brief(t, 1);
    t.wait(11, 1);
    brief(t, 1);
    brief(t, 0);
  });
  // All before tick 2 of lane 0 precedes tick 1 of lane 1.
  REQUIRE(edges == std::set<Edge>{{0, 2, 1, 1, 0}});
}

TEST_CASE("Lanes without a wait have no edge", "[trace][step][edges]") {
  REQUIRE(edges_of([](TraceBuilder& t, int) {
            brief(t, 0);
            t.record(11, 0);
            brief(t, 1);
          }).empty());
}

TEST_CASE("A wait orders after the last record of its event before it", "[trace][step][edges]") {
  const auto edges = edges_of([](TraceBuilder& t, int) {
    brief(t, 0);
    t.record(11, 0);
    brief(t, 0);
    t.record(11, 0);
    brief(t, 0);
    t.wait(11, 1);
    brief(t, 1);
  });
  REQUIRE(edges == std::set<Edge>{{0, 2, 1, 0, 0}});
}

TEST_CASE("A block freed after the record and before the next request is not behind the edge",
          "[trace][step][edges]") {
  const auto edges = edges_of([](TraceBuilder& t, int) {
    brief(t, 0);
    const auto late = t.allocate(500, 0);
    t.record(11, 0);
    t.free(late);  // it ends at tick 2, as if the record had seen it end
    t.wait(11, 1);
    brief(t, 1);
    brief(t, 0);
  });
  REQUIRE(edges == std::set<Edge>{{0, 1, 1, 0, 0}});
}

TEST_CASE("A block of the step before counts when it is freed after the record",
          "[trace][step][edges]") {
  trace::BlockId kept = 0;
  const auto edges = edges_of([&](TraceBuilder& t, int) {
    brief(t, 0);
    t.record(11, 0);
    if (kept != 0) t.free(kept);
    brief(t, 0);
    kept = t.allocate(500, 0);
    t.wait(11, 1);
    brief(t, 1);
  });
  REQUIRE(edges == std::set<Edge>{{0, 0, 1, 0, 0}});
}

TEST_CASE("An event recorded in one step and waited for in the next has an edge between them",
          "[trace][step][edges]") {
  const auto edges = edges_of([](TraceBuilder& t, int i) {
    brief(t, 1);
    if (i != 0) t.wait(11, 1);
    brief(t, 1);
    brief(t, 0);
    t.record(11, 0);
    brief(t, 0);
  });
  REQUIRE(edges == std::set<Edge>{{0, 1, 1, 1, 1}});
}

TEST_CASE("A wait that is missing in one repeat proves nothing", "[trace][step][edges]") {
  REQUIRE(edges_of([](TraceBuilder& t, int i) {
            brief(t, 0);
            t.record(11, 0);
            if (i != 2) t.wait(11, 1);
            brief(t, 1);
          }).empty());
}

TEST_CASE("A wait at another tick in one repeat proves nothing", "[trace][step][edges]") {
  REQUIRE(edges_of([](TraceBuilder& t, int i) {
            brief(t, 0);
            t.record(11, 0);
            if (i != 3) t.wait(11, 1);
            brief(t, 1);
            if (i == 3) t.wait(11, 1);
            brief(t, 1);
            brief(t, 0);
          }).empty());
}

TEST_CASE("A host that waits for a lane orders every other lane after it", "[trace][step][edges]") {
  const auto edges = edges_of([](TraceBuilder& t, int) {
    brief(t, 0);
    brief(t, 1);
    brief(t, 2);
    t.synchronize_lane(1);
    brief(t, 0);
    brief(t, 1);
    brief(t, 2);
  });
  REQUIRE(edges == std::set<Edge>{{1, 1, 0, 1, 0}, {1, 1, 2, 1, 0}});
}

TEST_CASE("A host that waits for an event orders the other lanes after its record",
          "[trace][step][edges]") {
  const auto edges = edges_of([](TraceBuilder& t, int) {
    brief(t, 1);
    t.record(4, 1);
    brief(t, 1);
    brief(t, 0);
    t.synchronize(4);
    brief(t, 0);
  });
  REQUIRE(edges == std::set<Edge>{{1, 1, 0, 1, 0}});
}

TEST_CASE("A host that waits for all at the end of a step parts the steps of all lanes",
          "[trace][step][edges]") {
  const auto edges = edges_of([](TraceBuilder& t, int) {
    brief(t, 0);
    brief(t, 1);
    brief(t, 0);
    t.synchronize_all();
  });
  REQUIRE(edges == std::set<Edge>{{0, 0, 1, 0, 0}, {1, 0, 0, 0, 0}});
}

TEST_CASE("A lane that is done with its step is behind the rest of another's",
          "[trace][step][edges]") {
  const auto edges = edges_of([](TraceBuilder& t, int) {
    brief(t, 1);
    brief(t, 1);
    brief(t, 0);
    t.record(4, 1);
    t.wait(4, 0);
    brief(t, 0);
  });
  // From tick 2 of 2: all of its step.
  REQUIRE(edges == std::set<Edge>{{1, 2, 0, 1, 0}});
}

TEST_CASE("An edge that another implies is left out", "[trace][step][edges]") {
  const auto edges = edges_of([](TraceBuilder& t, int) {
    brief(t, 0);
    t.record(4, 0);
    brief(t, 0);
    t.record(5, 0);
    t.wait(4, 1);
    t.wait(5, 1);
    brief(t, 1);
    t.wait(4, 1);
    brief(t, 1);
    brief(t, 0);
  });
  REQUIRE(edges == std::set<Edge>{{0, 2, 1, 0, 0}});
}

TEST_CASE("Edges of an unrolled step join each of its periods", "[trace][step][edges]") {
  trace::BlockId before = 0;
  const auto edges = edges_of([&](TraceBuilder& t, int) {
    const auto large = t.allocate(1 << 20, 0);
    t.record(4, 0);
    t.wait(4, 1);
    brief(t, 1);
    brief(t, 0);
    if (before != 0) t.free(before);
    before = large;
  });
  REQUIRE(edges == std::set<Edge>{{0, 1, 1, 0, 0}, {0, 3, 1, 1, 0}});
}
