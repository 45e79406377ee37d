#include "csrc/replay/forecast.h"

#include "csrc/place/plan_trace.h"
#include "csrc/replay/hits_by_kind.h"
#include "csrc/replay/through_berth.h"
#include "csrc/replay/through_caching_model.h"
#include "csrc/trace/step_coverage.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace berth::replay {
namespace {

constexpr Bytes kUnit = 512;            // what sizes are rounded to on CUDA
constexpr std::uint32_t kEnough = 8;    // repeats within which berth has learnt any step
constexpr double kPlanningSeconds = 2;  // as in learning

// What lives at the peak, and how much of it outlives steps.
void weigh(const Trace& trace, const std::optional<Step>& step, Forecast& result) {
  struct Block {
    Bytes bytes = 0;
    std::uint64_t born = 0, freed = ~std::uint64_t{0};  // requests before
  };
  std::unordered_map<trace::BlockId, Block> blocks;
  std::uint64_t requests = 0, peak_at = 0;
  const Bytes unit = result.on_cpu ? trace.alignment : kUnit;
  Bytes live = 0;
  for (const trace::Entry& entry : trace.entries) {
    if (const auto* request = std::get_if<trace::Request>(&entry.event)) {
      Block& block = blocks[request->id];
      block.bytes = align_up(request->bytes, unit);
      block.born = requests++;
      live += block.bytes;
      if (live > result.live) {
        result.live = live;
        peak_at = block.born;
      }
    } else if (const auto* free = std::get_if<trace::Free>(&entry.event)) {
      const auto it = blocks.find(free->id);
      if (it == blocks.end() || it->second.freed <= requests) continue;
      it->second.freed = requests;
      live -= it->second.bytes;
    }
  }
  std::unordered_set<trace::BlockId> residents;
  if (step) {
    for (const Resident& resident : step->residents) residents.insert(resident.block);
  }
  result.resident_by_step = step.has_value();
  for (const auto& [id, block] : blocks) {
    if (block.born > peak_at || block.freed <= peak_at) continue;
    const std::uint64_t lived = std::min(block.freed, requests) - block.born;
    if (step ? residents.contains(id) : 2 * lived >= requests) result.resident += block.bytes;
  }
}

std::optional<Bytes> measured(const Trace& trace) {
  Bytes now = 0, peak = 0;
  bool any = false;
  for (const trace::Entry& entry : trace.entries) {
    const auto* segment = std::get_if<trace::Segment>(&entry.event);
    if (segment == nullptr) continue;
    any = true;
    now = segment->reserve ? now + segment->bytes : now - std::min(now, segment->bytes);
    peak = std::max(peak, now);
  }
  return any ? std::optional(peak) : std::nullopt;
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

// As in training: plans are made beside the steps.
Result learn(const Workload& workload) {
  BerthOptions options;
  options.steps = options.background = true;
  return through_berth(workload, options);
}

bool serves_a_plan(const Result& result) {
  return result.hits.value_or(0) + result.hits_bucket.value_or(0) != 0;
}

}  // namespace

std::optional<double> Forecast::batch_factor(Bytes bytes, Bytes reserved) const noexcept {
  if (reserved <= resident || bytes <= resident) return std::nullopt;
  return static_cast<double>(bytes - resident) / static_cast<double>(reserved - resident);
}

Trace repeat_step(const Trace& trace, const Step& step, std::uint32_t times) {
  Trace run = trace;
  const auto first = std::lower_bound(
      run.entries.begin(), run.entries.end(), step.first_tick,
      [](const trace::Entry& entry, trace::Tick tick) { return entry.tick < tick; });
  const auto last = std::lower_bound(
      first, run.entries.end(), step.last_tick,
      [](const trace::Entry& entry, trace::Tick tick) { return entry.tick < tick; });
  run.entries.erase(last, run.entries.end());
  // The last repeat, of equally many requests as each; `step` may cover several periods.
  const std::size_t begin = static_cast<std::size_t>(first - run.entries.begin());
  std::uint64_t requests_before = 0;
  std::unordered_map<trace::BlockId, std::uint64_t> index;  // of a block, among all requests
  std::vector<trace::BlockId> ids;
  trace::BlockId next = 1;
  for (std::size_t i = 0; i < run.entries.size(); ++i) {
    const auto* request = std::get_if<trace::Request>(&run.entries[i].event);
    if (i == begin) requests_before = ids.size();
    if (request == nullptr) continue;
    index[request->id] = ids.size();
    ids.push_back(request->id);
    next = std::max(next, request->id + 1);
  }
  const std::uint64_t period = ids.size() - requests_before;
  const std::vector<trace::Entry> repeat(run.entries.begin() + static_cast<std::ptrdiff_t>(begin),
                                         run.entries.end());
  std::unordered_set<trace::BlockId> freed;
  for (const trace::Entry& entry : run.entries) {
    if (const auto* free = std::get_if<trace::Free>(&entry.event)) freed.insert(free->id);
  }
  trace::Tick tick = run.entries.empty() ? 0 : run.entries.back().tick;
  std::vector<trace::BlockId> before(ids.begin() + static_cast<std::ptrdiff_t>(requests_before),
                                     ids.end());
  for (std::uint32_t time = 0; time < times; ++time) {
    std::vector<trace::BlockId> now(period);
    // The block that stands for `id` in this repeat; 0 where it is none of a step.
    const auto renamed = [&](trace::BlockId id) -> trace::BlockId {
      const auto it = index.find(id);
      if (it == index.end()) return 0;
      if (it->second >= requests_before) return now[it->second - requests_before];
      if (it->second + period < requests_before) return 0;
      return before[it->second + period - requests_before];
    };
    for (const trace::Entry& entry : repeat) {
      trace::Entry copy = entry;
      if (auto* request = std::get_if<trace::Request>(&copy.event)) {
        const std::uint64_t at = index.at(request->id) - requests_before;
        request->id = now[at] = next++;
      } else if (auto* free = std::get_if<trace::Free>(&copy.event)) {
        free->id = renamed(free->id);
        if (free->id == 0 || !freed.insert(free->id).second) continue;
      } else if (auto* use = std::get_if<trace::Use>(&copy.event)) {
        use->id = renamed(use->id);
        if (use->id == 0) continue;
      } else if (std::holds_alternative<trace::Segment>(copy.event)) {
        continue;
      }
      copy.tick = ++tick;
      run.entries.push_back(std::move(copy));
    }
    before = std::move(now);
  }
  return run;
}

Forecast forecast(const Trace& trace) {
  Forecast result;
  result.alignment = trace.alignment;
  result.on_cpu = trace.program.device_name == "cpu" || trace.alignment < kUnit;
  const Repeats repeats = find_repeats(trace);
  weigh(trace, repeats.step, result);
  if (!result.on_cpu) result.measured = measured(trace);
  result.why_no_step = repeats.step ? "" : repeats.why_not;
  if (repeats.step) {
    const StepCoverage coverage = coverage_of(trace, *repeats.step);
    result.repeating_requests = coverage.share_of_requests();
    result.repeating_bytes = coverage.share_of_bytes();
  }

  Workload workload = make_workload(trace);
  result.requests = workload.requests;
  result.steps = workload.steps;
  Result planned = learn(workload);
  if (repeats.step && !serves_a_plan(planned) && repeats.step->repeats < kEnough) {
    result.repeated = kEnough - repeats.step->repeats;
    workload = make_workload(repeat_step(trace, *repeats.step, result.repeated));
    planned = learn(workload);
  }
  result.planned = planned.reserved_peak.value_or(0);
  count_hits(workload, planned, result);
  result.pool = through_berth(workload, {.planned = false}).reserved_peak.value_or(0);
  if (repeats.any()) {
    PlaceOptions options;
    options.time_limit_seconds = kPlanningSeconds;
    const Plan plan = plan_repeats(repeats, trace, trace.alignment, options);
    result.arena = plan.arena_bytes;
    result.arena_bound = plan.lower_bound;
  }
  result.caching = through_caching_model(workload, false).reserved_peak.value_or(0);
  result.expandable = through_caching_model(workload, true).reserved_peak.value_or(0);
  return result;
}

}  // namespace berth::replay
