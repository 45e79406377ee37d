#include "csrc/trace/traced_run.h"

#include "tests/catch.h"
#include "tests/support/recording.h"

using namespace berth;
using test::Recording;

namespace {

const TracedBlock& block_of(const TracedRun& run, trace::BlockId id) {
  const auto found = std::ranges::find(run.blocks(), id, &TracedBlock::id);
  REQUIRE(found != run.blocks().end());
  return *found;
}

}  // namespace

TEST_CASE("What runs inside a backward operator belongs to that one's module", "[trace]") {
  Recording run;
  std::uint64_t ranges = 0;
  const auto in_module = [&](const std::string& name, std::int64_t sequence) {
    run.add(trace::RangeBegin{++ranges, run.builder.name(name), trace::RangeKind::kModule});
    run.make("aten::mm", {}, 64, {.sequence = sequence});
    run.add(trace::RangeEnd{ranges});
  };
  in_module("encoder", 1);
  in_module("decoder", 2);
  const auto node = run.begin("MmBackward0", {.sequence = 1, .backward = true});
  const trace::BlockId inside = run.make("aten::mul", {}, 64, {.sequence = 2, .backward = true});
  run.end(node);
  const TracedRun traced(run.builder.trace());
  CHECK(run.builder.trace().name(block_of(traced, inside).origin.module) == "encoder");
  CHECK(traced.operators()[2].forward == 0);
  CHECK(traced.operators()[3].forward == 0);
}

TEST_CASE("An operator without an end is open no longer than the one around it", "[trace]") {
  Recording run;
  const auto outer = run.begin("aten::add");
  run.begin("aten::item");  // threw
  run.end(outer);
  const trace::BlockId later = run.request(64);
  const TracedRun traced(run.builder.trace());
  CHECK(block_of(traced, later).op == kNoOperator);
  CHECK(traced.operators()[1].parent == 0);
  CHECK(traced.operators()[1].last_tick == traced.operators()[0].last_tick);
}

TEST_CASE("The peak of a part of a run counts what was there when it began", "[trace]") {
  Recording run;
  const trace::BlockId first = run.request(640);
  run.free(run.request(6400));
  run.mark();  // tick 3
  run.free(run.request(64));
  run.free(first);
  const TracedRun traced(run.builder.trace());
  CHECK(traced.peak() == 7040);
  CHECK(traced.peak_between(3, 6) == 704);
  CHECK(traced.peak_between(5, 6) == 640);
}
