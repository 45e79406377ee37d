#include "csrc/replay/forecast.h"

#include "csrc/facts/rounding.h"
#include "csrc/place/plan_trace.h"
#include "csrc/replay/hits_by_kind.h"
#include "csrc/replay/through_berth.h"
#include "csrc/replay/through_caching_model.h"
#include "csrc/trace/held_segments.h"
#include "csrc/trace/snapshot.h"
#include "csrc/trace/step_coverage.h"
#include "csrc/trace/traced_run.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

namespace berth::replay {
namespace {

constexpr std::uint32_t kEnough = 8;    // repeats within which berth has learnt any step
constexpr double kPlanningSeconds = 2;  // as in learning

// The tick from which on the history has all requests.
trace::Tick end_of_unrecorded(const Trace& trace) {
  std::uint64_t before = 0;
  trace::Tick until = 0;
  for (const trace::Entry& entry : trace.entries) {
    if (const auto* begin = std::get_if<trace::RangeBegin>(&entry.event)) {
      if (begin->kind == trace::RangeKind::kPhase && trace.name(begin->name) == kBeforeHistory)
        before = begin->range;
    } else if (const auto* end = std::get_if<trace::RangeEnd>(&entry.event)) {
      if (before != 0 && end->range == before) until = entry.tick;
    }
  }
  return until;
}

// What lives at the peak, and how much of it outlives steps.
void weigh(const Trace& trace, const std::optional<Step>& step, Forecast& result) {
  const TracedRun traced(trace, result.on_cpu ? trace.alignment : facts::kCudaUnit);
  const std::vector<TracedBlock>& blocks = traced.blocks();
  result.live = traced.peak();
  result.frees = traced.frees();
  const auto requests_before = [&](trace::Tick tick) {
    const auto after = std::ranges::lower_bound(blocks, tick, {}, &TracedBlock::birth);
    return static_cast<std::uint64_t>(after - blocks.begin());
  };
  result.recorded_requests = blocks.size() - requests_before(end_of_unrecorded(trace));
  std::unordered_set<trace::BlockId> residents;
  if (step) {
    for (const Resident& resident : step->residents) residents.insert(resident.block);
  }
  result.resident_by_step = step.has_value();
  for (std::uint64_t k = 0; k < blocks.size(); ++k) {
    const TracedBlock& block = blocks[k];
    if (!block.lives_at(traced.peak_tick())) continue;
    const std::uint64_t lived = requests_before(block.end) - k;
    if (step ? residents.contains(block.id) : 2 * lived >= blocks.size())
      result.resident += block.bytes;
  }
}

// What PyTorch's allocator reserved by the segments of the trace.
void take_measured(const Trace& trace, Forecast& result) {
  HeldSegments held;
  for (const trace::Entry& entry : trace.entries) held.see(entry);
  if (held.any) (held.peak < result.live ? result.contradicting : result.measured) = held.peak;
}

void count_hits(const Workload& workload, const Result& replayed, Forecast& result) {
  std::uint64_t requests = 0, hits = 0, all = 0, again = 0;
  for (const KindResult& kind : hits_by_kind(workload, replayed.steps)) {
    requests += kind.late_requests;
    hits += kind.late_hits;
    result.kinds += kind.step_requests != 0 ? 1 : 0;
    all += kind.requests;
    again += kind.step_requests != 0 ? kind.requests : 0;
    result.many_sizes |= kind.many_sizes;
  }
  if (!result.repeating_bytes && all != 0)
    result.repeating_requests = static_cast<double>(again) / static_cast<double>(all);
  if (requests != 0) {
    result.hits = static_cast<double>(hits) / static_cast<double>(requests);
  } else if (workload.requests != 0) {  // no marks
    result.hits =
        static_cast<double>(replayed.hits.value_or(0) + replayed.hits_bucket.value_or(0)) /
        static_cast<double>(workload.requests);
  }
}

// What each allocator reserves for a workload; the larger figure counts.
void serve(const Workload& workload, const Result& learned, Forecast& result) {
  const auto raise = [](Bytes& figure, const Result& served) {
    figure = std::max(figure, served.reserved_peak.value_or(0));
  };
  raise(result.planned, learned);
  raise(result.pool, through_berth(workload, {.planned = false}));
  raise(result.caching, through_caching_model(workload, false));
  raise(result.expandable, through_caching_model(workload, true));
}

bool serves_a_plan(const Result& result) {
  return result.hits.value_or(0) + result.hits_bucket.value_or(0) != 0;
}

}  // namespace

std::optional<double> Forecast::batch_factor(Bytes bytes, Bytes reserved) const noexcept {
  if (reserved <= resident || bytes <= resident) return std::nullopt;
  return static_cast<double>(bytes - resident) / static_cast<double>(reserved - resident);
}

Forecast forecast(const Trace& trace) {
  Forecast result;
  result.alignment = trace.alignment;
  result.on_cpu = trace.program.device_name == "cpu" || trace.alignment < facts::kCudaUnit;
  Repeats repeats = find_repeats(trace);
  // Where kinds of steps come in turns one of them may still tell what outlives steps.
  weigh(trace, repeats.kinds.empty() ? repeats.step : extract_step(trace), result);
  if (!result.on_cpu) take_measured(trace, result);
  result.why_no_step = repeats.step ? "" : repeats.why_not;
  if (repeats.step) {
    const StepCoverage coverage = coverage_of(trace, *repeats.step);
    result.repeating_requests = coverage.share_of_requests();
    result.repeating_bytes = coverage.share_of_bytes();
  }

  const Workload run = make_workload(trace);
  result.requests = run.requests;
  result.steps = run.steps;
  const Result learned = learn_in_place(run);
  result.planned_run = learned.reserved_peak.value_or(0);
  serve(run, learned, result);
  std::optional<StepWindow> window;
  if (!serves_a_plan(learned) && (!repeats.step || repeats.step->repeats < kEnough))
    window = step_to_repeat(trace, repeats);
  Trace longer;
  if (window) {
    const std::uint32_t times = kEnough - (repeats.step ? repeats.step->repeats : 1);
    longer = repeat_step(trace, *window, times);
    const Workload workload = make_workload(longer);
    result.repeated = times;
    result.repeated_live = workload.live_peak(result.on_cpu ? trace.alignment : facts::kCudaUnit);
    result.assumed = !window->seen_twice;
    const Result again = learn_in_place(workload);
    serve(workload, again, result);
    count_hits(workload, again, result);
    if (result.assumed) {
      longer = repeat_step(trace, *window, times, true);
      repeats = find_repeats(longer);
    }
  } else {
    count_hits(run, learned, result);
  }
  if (repeats.any()) {
    PlaceOptions options;
    options.time_limit_seconds = kPlanningSeconds;
    const Plan plan =
        plan_repeats(repeats, result.assumed ? longer : trace, trace.alignment, options);
    result.arena = plan.arena_bytes;
    result.arena_bound = plan.lower_bound;
  }
  return result;
}

}  // namespace berth::replay
