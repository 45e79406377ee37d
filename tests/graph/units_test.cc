#include "csrc/graph/units.h"

#include "tests/catch.h"
#include "tests/support/recording.h"
#include "tests/trace/random_trace.h"

#include <map>

using namespace berth;
using namespace berth::graph;
using test::Recording;

namespace {

Units units_of(const Trace& trace) { return find_units(trace, TracedRun(trace)); }

}  // namespace

TEST_CASE("An operator whose end is missing ends at its thread's next mark", "[graph][trace]") {
  Recording run;
  const trace::BlockId x = run.request(64);
  const auto torn = run.begin("aten::exp");
  run.takes(torn, x);
  run.mark();
  run.make("aten::mm", {x}, 64);
  const Units found = units_of(run.builder.trace());
  REQUIRE(found.units.size() == 2);
  CHECK(found.units[0].last_tick < found.units[1].first_tick);
}

TEST_CASE("An operator that threw ends with the one around it", "[graph][trace]") {
  Recording run;
  const trace::BlockId x = run.request(64);
  const auto outer = run.begin("aten::add");
  run.takes(outer, x);
  const auto torn = run.begin("aten::item");
  run.takes(torn, x);
  run.end(outer);
  run.make("aten::mm", {x}, 64);
  const Units found = units_of(run.builder.trace());
  REQUIRE(found.units.size() == 2);
  CHECK(found.units[0].host_sync);
  CHECK_FALSE(found.units[1].host_sync);
}

TEST_CASE("Operators without operands are passed through", "[graph][trace]") {
  Recording run;
  const trace::BlockId x = run.request(64);
  const auto wrapper = run.begin("profiler::wrapper");
  run.make("aten::mm", {x}, 64);
  run.make("aten::exp", {x}, 64);
  run.end(wrapper);
  CHECK(units_of(run.builder.trace()).units.size() == 2);
}

TEST_CASE("What runs in an optimizer's range is known", "[graph][trace]") {
  Recording run;
  const trace::BlockId x = run.request(64);
  run.add(trace::RangeBegin{.range = 4, .name = run.builder.name("Optimizer.step#SGD.step")});
  run.change("aten::add_", x);
  run.add(trace::RangeEnd{4});
  run.change("aten::mul_", x);
  const Units found = units_of(run.builder.trace());
  REQUIRE(found.units.size() == 2);
  CHECK(found.units[0].in_optimizer);
  CHECK_FALSE(found.units[1].in_optimizer);
}

TEST_CASE("Units of any trace are in order and do not overlap on their thread",
          "[graph][trace][random]") {
  std::size_t units = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    const Trace trace = test::random_trace(seed, 600);
    const Units found = units_of(trace);
    units += found.units.size();
    std::map<trace::ThreadId, trace::Tick> last;
    trace::Tick before = 0;
    for (UnitIndex u = 0; u < found.units.size(); ++u) {
      const Unit& unit = found.units[u];
      REQUIRE(unit.first_tick >= before);
      REQUIRE(unit.last_tick >= unit.first_tick);
      if (last.contains(unit.thread)) REQUIRE(unit.first_tick > last[unit.thread]);
      REQUIRE((unit.forward_unit == kNoUnit || unit.forward_unit < u));
      for (std::size_t t = 1; t < unit.touches.size(); ++t)
        REQUIRE(unit.touches[t - 1].block < unit.touches[t].block);
      before = unit.first_tick;
      last[unit.thread] = unit.last_tick;
    }
  }
  CHECK(units > 500);
}
