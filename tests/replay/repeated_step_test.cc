#include "csrc/replay/repeated_step.h"

#include "csrc/replay/forecast.h"
#include "csrc/replay/workload.h"
#include "csrc/trace/snapshot.h"
#include "tests/catch.h"
#include "tests/support/trace_builder.h"

#include <map>
#include <optional>
#include <set>

using namespace berth;
using namespace berth::replay;
using berth::test::TraceBuilder;

namespace {

constexpr Bytes kMebi = Bytes{1} << 20;

// A run of CUDA, told in MiB.
class ToldRun : public TraceBuilder {
 public:
  ToldRun() { trace().alignment = 512; }
  trace::BlockId take(double mebibytes) {
    return allocate(static_cast<Bytes>(mebibytes * static_cast<double>(kMebi)));
  }
  // `name` is a new block from here on; what it was goes.
  void replace(const std::string& name, double mebibytes) {
    const trace::BlockId made = take(mebibytes);
    drop(name);
    named_[name] = made;
  }
  void drop(const std::string& name) {
    if (const auto it = named_.find(name); it != named_.end()) {
      free(it->second);
      named_.erase(it);
    }
  }

 private:
  std::map<std::string, trace::BlockId> named_;
};

double mebibytes(Bytes bytes) { return static_cast<double>(bytes) / static_cast<double>(kMebi); }

// What lives at most once the step of the run was repeated; nothing where it has none.
std::optional<double> live_when_repeated(const Trace& run, std::uint32_t times = 7) {
  const auto window = step_to_repeat(run, find_repeats(run));
  if (!window) return std::nullopt;
  const Trace longer = repeat_step(run, *window, times);
  std::set<trace::BlockId> requested, live;
  for (const trace::Entry& entry : longer.entries) {
    if (const auto* request = std::get_if<trace::Request>(&entry.event)) {
      REQUIRE(requested.insert(request->id).second);
      live.insert(request->id);
    } else if (const auto* free = std::get_if<trace::Free>(&entry.event)) {
      REQUIRE(live.erase(free->id) == 1);
    }
  }
  return mebibytes(make_workload(longer).live_peak(512));
}

// Batches of a wide layer without gradients: the input and the output of a batch go once those of
// the next one are there. The first batch makes a workspace between the two.
Trace two_outputs(int batches) {
  ToldRun run;
  (void)run.take(1907.5);
  (void)run.take(0.2);
  for (int batch = 0; batch < batches; ++batch) {
    run.replace("x", 190.8);
    if (batch == 0) (void)run.take(8.1);
    run.replace("y", 953.7);
  }
  return run.trace();
}

// Steps of 12, 25 and 40 MiB beside 30 MiB of weights, where the 40 is freed in the next step.
class Carrying : public ToldRun {
 public:
  Carrying() { (void)take(30); }
  void step() {
    const trace::BlockId a = take(12), b = take(25);
    free(a);
    drop("c");
    replace("c", 40);
    free(b);
  }
};

}  // namespace

TEST_CASE("Outputs that the next step frees do not pile up in repeats", "[replay][repeat]") {
  for (const int batches : {3, 4, 5}) {
    const Trace run = two_outputs(batches);
    const double live = mebibytes(make_workload(run).live_peak(512));
    CAPTURE(batches, live);
    REQUIRE(live == Approx(4014).epsilon(0.001));
    REQUIRE(live_when_repeated(run).value() <= live);
    const Forecast forecast = replay::forecast(run);
    REQUIRE(forecast.live <= forecast.planned);
    REQUIRE(mebibytes(forecast.planned) == Approx(live).epsilon(0.02));
  }
  // Of one batch no overlap of outputs is known, and none is made up.
  const Forecast one = replay::forecast(two_outputs(1));
  REQUIRE(mebibytes(one.planned) == Approx(mebibytes(one.live)).epsilon(0.02));
}

TEST_CASE("A block that lives for three steps is one of three in repeats, too",
          "[replay][repeat]") {
  ToldRun run;
  (void)run.take(100);
  std::vector<trace::BlockId> losses;
  for (int step = 0; step < 5; ++step) {
    const trace::BlockId a = run.take(30);
    losses.push_back(run.take(10));
    if (losses.size() > 3) run.free(losses[losses.size() - 4]);
    run.free(a);
    run.mark();
  }
  REQUIRE(mebibytes(make_workload(run.trace()).live_peak(512)) == 170);
  REQUIRE(live_when_repeated(run.trace()) == 170.0);
}

TEST_CASE("What a program keeps of every step is replaced in repeats", "[replay][repeat]") {
  ToldRun run;
  (void)run.take(100);
  for (int step = 0; step < 4; ++step) {
    const trace::BlockId a = run.take(30);
    (void)run.take(10);
    run.free(a);
    run.mark();
  }
  REQUIRE(live_when_repeated(run.trace()).value() <= 170);
}

TEST_CASE("A history of one step is that step repeated beside what was there before",
          "[replay][repeat]") {
  Carrying run;
  run.step();
  run.mark();
  REQUIRE(mebibytes(make_workload(run.trace()).live_peak(512)) == 95);
  // The block that is carried lives through the first part of the next step.
  REQUIRE(live_when_repeated(run.trace()) == 107.0);
  const Forecast forecast = replay::forecast(run.trace());
  REQUIRE(forecast.assumed);
  REQUIRE(forecast.repeated == 7);
  REQUIRE(forecast.live == 95 * kMebi);
  REQUIRE(forecast.repeated_live == 107 * kMebi);
  REQUIRE(forecast.planned_run < forecast.planned);
  REQUIRE(mebibytes(forecast.planned) == Approx(107).epsilon(0.04));
  REQUIRE(forecast.native() >= 107 * kMebi);
  REQUIRE(forecast.arena == forecast.arena_bound);
  REQUIRE(forecast.arena == 37 * kMebi);
}

TEST_CASE("Where a history may end inside a step, repeats need no more than it did",
          "[replay][repeat]") {
  // The same without a mark: the last block may be one of the first part.
  Carrying run;
  run.step();
  REQUIRE(live_when_repeated(run.trace()) == 95.0);
  const Forecast forecast = replay::forecast(run.trace());
  REQUIRE(forecast.assumed);
  REQUIRE(forecast.planned == forecast.planned_run);
  REQUIRE(forecast.arena == 65 * kMebi);
  // One that leaves nothing alive is whole.
  ToldRun inference;
  (void)inference.take(30);
  trace::BlockId last = inference.take(12);
  for (int layer = 0; layer < 8; ++layer) {
    const trace::BlockId next = inference.take(20 + layer);
    inference.free(last);
    last = next;
  }
  inference.free(last);
  REQUIRE(live_when_repeated(inference.trace()) ==
          mebibytes(make_workload(inference.trace()).live_peak(512)));
}

TEST_CASE("A history that ends inside its second step repeats a whole one", "[replay][repeat]") {
  for (const bool marked : {true, false}) {
    Carrying run;
    run.step();
    if (marked) run.mark();
    (void)run.take(12);
    (void)run.take(25);
    REQUIRE(mebibytes(make_workload(run.trace()).live_peak(512)) == 107);
    REQUIRE(live_when_repeated(run.trace()) == 107.0);
  }
}

TEST_CASE("A block from before the history tells what becomes of its successor",
          "[replay][repeat]") {
  // The ring begins within a step: 30 of weights and 40 of the step before are there.
  ToldRun run;
  run.trace().strings.emplace_back(kBeforeHistory);
  run.add(trace::RangeBegin{1, 1, trace::RangeKind::kPhase});
  (void)run.take(30);
  const trace::BlockId carried = run.take(40);
  run.add(trace::RangeEnd{1});
  const trace::BlockId a = run.take(12), b = run.take(25);
  run.free(a);
  run.free(carried);
  (void)run.take(40);
  run.free(b);
  REQUIRE(live_when_repeated(run.trace()) == 107.0);
  REQUIRE(replay::forecast(run.trace()).recorded_requests == 3);
}

TEST_CASE("What a run frees in the step that it breaks off in is freed there in repeats",
          "[replay][repeat]") {
  // The 40 goes after the first request of the next step, of which the history has two.
  ToldRun run;
  (void)run.take(30);
  const trace::BlockId a = run.take(12), c = run.take(40), b = run.take(70);
  run.free(a);
  run.free(b);
  run.mark();
  const trace::BlockId again = run.take(12);
  run.free(c);
  run.free(again);
  (void)run.take(41);
  REQUIRE(live_when_repeated(run.trace()) == 152.0);
}

TEST_CASE("Where steps differ, and in a stream of requests, none is repeated", "[replay][repeat]") {
  ToldRun steps;
  for (int step = 0; step < 6; ++step) {
    for (int i = 0; i < 4; ++i) steps.free(steps.take(1 + step * 4 + i * i));
    steps.mark();
  }
  REQUIRE_FALSE(step_to_repeat(steps.trace(), find_repeats(steps.trace())));
  ToldRun stream;
  std::vector<trace::BlockId> blocks;
  for (int i = 0; i < 300; ++i) {
    blocks.push_back(stream.take(1 + 0.01 * ((i * 7919) % 3001)));
    if (i >= 5) stream.free(blocks[static_cast<std::size_t>(i) - 5]);
  }
  REQUIRE_FALSE(step_to_repeat(stream.trace(), find_repeats(stream.trace())));
  ToldRun kept;  // nothing is freed
  (void)kept.take(3);
  (void)kept.take(5);
  REQUIRE_FALSE(step_to_repeat(kept.trace(), find_repeats(kept.trace())));
  REQUIRE_FALSE(step_to_repeat(Trace{}, find_repeats(Trace{})));
}

TEST_CASE("A larger part behind the steps counts in every figure", "[replay][forecast]") {
  // Three equal steps, then an evaluation that needs ten times as much.
  ToldRun run;
  (void)run.take(50);
  const auto part = [&](int blocks, double each) {
    std::vector<trace::BlockId> made;
    for (int i = 0; i < blocks; ++i) made.push_back(run.take(each + 0.0625 * i));
    while (!made.empty()) {
      run.free(made.back());
      made.pop_back();
    }
  };
  for (int step = 0; step < 3; ++step) {
    part(20, 5);
    run.mark();
  }
  part(16, 64);
  const Forecast forecast = replay::forecast(run.trace());
  REQUIRE(mebibytes(forecast.live) == Approx(1081.5));
  for (const Bytes figure : {forecast.planned, forecast.planned_run, forecast.pool,
                             forecast.caching, forecast.expandable})
    REQUIRE(figure >= forecast.live);
  REQUIRE(mebibytes(forecast.planned) == Approx(1081.5).epsilon(0.02));
}

TEST_CASE("Segments that hold less than lives are not what was measured", "[replay][forecast]") {
  Carrying run;
  for (int step = 0; step < 12; ++step) {
    run.step();
    run.mark();
  }
  run.add(trace::Segment{0, 50 * kMebi, true});
  const Forecast forecast = replay::forecast(run.trace());
  REQUIRE_FALSE(forecast.measured);
  REQUIRE(forecast.contradicting == 50 * kMebi);
  REQUIRE(forecast.native() == forecast.caching);
}
