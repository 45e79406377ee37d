#include "csrc/replay/forecast.h"

#include "csrc/replay/through_berth.h"
#include "csrc/replay/workload.h"
#include "tests/catch.h"

#include <set>

using namespace berth;
using namespace berth::replay;

namespace {

constexpr Bytes kMiB = Bytes{1} << 20;

// A run of CUDA: weights of 30 MiB, then `steps` steps of 12, 25 and 40 MiB, where the 40 is freed
// in the step after its own, and the ends are marked.
class Run {
 public:
  explicit Run(int steps) {
    trace_.lanes = {{0}};
    trace_.alignment = 512;
    (void)allocate(30 * kMiB);
    for (int step = 0; step < steps; ++step) {
      const trace::BlockId a = allocate(12 * kMiB), b = allocate(25 * kMiB);
      free(a);
      if (carried_ != 0) free(carried_);
      carried_ = allocate(40 * kMiB);
      free(b);
      add(trace::StepMark{});
    }
  }

  [[nodiscard]] Trace take() { return std::move(trace_); }
  void add(const trace::Event& event) {
    trace_.entries.push_back({static_cast<trace::Tick>(trace_.entries.size()), 0, 0, event});
  }
  trace::BlockId allocate(Bytes bytes) {
    add(trace::Request{++last_, bytes, 0, 0});
    return last_;
  }
  void free(trace::BlockId id) { add(trace::Free{id}); }

 private:
  Trace trace_;
  trace::BlockId last_ = 0, carried_ = 0;
};

}  // namespace

TEST_CASE("A forecast tells what lives from what outlives steps, and who would hold how much",
          "[replay][forecast]") {
  const Forecast forecast = replay::forecast(Run(12).take());
  REQUIRE(forecast.live == (30 + 12 + 25 + 40) * kMiB);
  REQUIRE(forecast.resident == 30 * kMiB);
  REQUIRE_FALSE(forecast.measured);
  REQUIRE(forecast.native() == forecast.caching);
  REQUIRE(forecast.caching >= forecast.live);
  REQUIRE(forecast.planned >= forecast.live);
  REQUIRE(forecast.planned <= forecast.live + 8 * kMiB);
  REQUIRE(forecast.arena == forecast.arena_bound);
  REQUIRE(forecast.arena == (12 + 25 + 40) * kMiB);
  REQUIRE(forecast.repeated == 0);
  REQUIRE(forecast.repeating_requests > 0.9);
  REQUIRE(forecast.hits > 0.6);
}

TEST_CASE("What PyTorch's allocator held is taken from the segments where the trace has them",
          "[replay][forecast]") {
  Run run(12);
  run.add(trace::Segment{0, 200 * kMiB, true});
  run.add(trace::Segment{0, 150 * kMiB, false});
  run.add(trace::Segment{0, 20 * kMiB, true});
  const Forecast forecast = replay::forecast(run.take());
  REQUIRE(forecast.native() == 200 * kMiB);
  REQUIRE(forecast.saving() == 200 * kMiB - forecast.planned);
  // Residents stay, the rest grows into what is saved.
  const double factor = forecast.batch_factor(200 * kMiB, forecast.planned).value();
  REQUIRE(factor == Approx(170.0 * kMiB / static_cast<double>(forecast.planned - 30 * kMiB)));
  REQUIRE_FALSE(forecast.batch_factor(20 * kMiB, forecast.planned).has_value());
}

TEST_CASE("A run that is too short to learn in is forecast with its step repeated",
          "[replay][forecast]") {
  const Forecast forecast = replay::forecast(Run(3).take());
  REQUIRE(forecast.repeated > 0);
  REQUIRE(forecast.planned == replay::forecast(Run(12).take()).planned);
}

TEST_CASE("A repeated step frees what it requests where the step does, and residents never",
          "[replay][forecast]") {
  const Trace run = Run(6).take();
  const auto window = step_to_repeat(run, find_repeats(run));
  REQUIRE(window);
  REQUIRE(window->seen_twice);
  const Trace longer = repeat_step(run, *window, 5);
  std::set<trace::BlockId> requested, live;
  Bytes at_end = 0;
  for (std::size_t i = 0; i < longer.entries.size(); ++i) {
    const trace::Entry& entry = longer.entries[i];
    if (i != 0) REQUIRE(longer.entries[i - 1].tick < entry.tick);
    if (const auto* request = std::get_if<trace::Request>(&entry.event)) {
      REQUIRE(requested.insert(request->id).second);
      live.insert(request->id);
      at_end += request->bytes;
    } else if (const auto* free = std::get_if<trace::Free>(&entry.event)) {
      REQUIRE(live.erase(free->id) == 1);
    }
  }
  REQUIRE(live.size() == 2);  // the weights, and what the last step leaves to the next
  const Workload workload = make_workload(longer);
  REQUIRE(workload.live_peak(512) == 107 * kMiB);
  REQUIRE(workload.requests > make_workload(run).requests);
}

TEST_CASE("Of a run that is not of CUDA the native allocators are not asked",
          "[replay][forecast]") {
  Trace run = Run(6).take();
  run.alignment = 64;
  REQUIRE(replay::forecast(run).on_cpu);
  REQUIRE(replay::forecast(Trace{}).live == 0);
}

TEST_CASE("A plan that is made in the background serves from a later mark on",
          "[replay][forecast]") {
  const Workload workload = make_workload(Run(12).take());
  const Result at_once = through_berth(workload, {});
  const Result later = through_berth(workload, {.background = true});
  REQUIRE(*at_once.hits > 0);
  REQUIRE(*later.hits > 0);
  REQUIRE(*later.hits < *at_once.hits);
  REQUIRE(*later.hits == *through_berth(workload, {.background = true}).hits);
}
