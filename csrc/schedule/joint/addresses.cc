#include "csrc/schedule/joint/addresses.h"

#include "csrc/core/check.h"
#include "csrc/facts/rounding.h"
#include "csrc/schedule/joint/lifetimes.h"

#include <algorithm>

namespace berth::schedule {
namespace {

void forget_addresses(graph::Schedule& schedule) {
  for (graph::Buffer& buffer : schedule.buffers) buffer.offsets.clear();
  for (graph::ScheduleStep& step : schedule.steps)
    step.workspace_offset = step.host_offset = graph::Buffer::kNoOffset;
  schedule.arena_bytes = schedule.host_bytes = 0;
}

// Those with bytes, in their order.
Problem problem_of(const std::vector<Lifetimes::One>& lifetimes) {
  Problem problem;
  Bytes sizes = facts::kCudaUnit;  // whose lowest bit is the alignment
  for (const Lifetimes::One& one : lifetimes) {
    if (one.bytes == 0) continue;
    if (one.buffer != Lifetimes::One::kWorkspace) sizes |= one.bytes;
    problem.buffers.push_back(
        {.size = one.bytes, .birth = one.birth, .length = one.end - one.birth});
  }
  problem.alignment = sizes & (~sizes + 1);
  return problem;
}

// Gives each copy to the host its place there.
void place_on_host(const Lifetimes& lifetimes, graph::Schedule& schedule, PlaceOptions place,
                   Addresses& result) {
  result.host_peak = lifetimes.host_peak;
  if (lifetimes.host.empty()) return;
  place.capacity = lifetimes.host_peak;
  place.progress = nullptr;
  place.time_limit_seconds = std::max(place.time_limit_seconds - result.seconds, 0.0);
  const Placement placement = place_buffers(problem_of(lifetimes.host), place);
  auto placed = placement.offsets.begin();
  for (const Lifetimes::One& one : lifetimes.host) {
    const Bytes offset = one.bytes == 0 ? 0 : *placed++;
    schedule.steps[one.step].host_offset = offset;
    result.host_bytes = std::max(result.host_bytes, offset + one.bytes);
  }
  schedule.host_bytes = result.host_bytes;
}

}  // namespace

Addresses place_addresses(const graph::Graph& graph, graph::Schedule& schedule,
                          const AddressOptions& options) {
  forget_addresses(schedule);
  const graph::Verdict verdict = graph::replay(graph, schedule, options.rates);
  BERTH_CHECK(verdict.violation.empty(), kUsage,
              "a schedule that is not legal has no addresses: {}", verdict.violation);
  const Lifetimes lifetimes = lifetimes_of(graph, schedule, options.rates);
  PlaceOptions place;
  place.capacity = options.capacity;
  place.time_limit_seconds = options.time_limit_seconds;
  place.iteration_budget = options.iteration_budget;
  place.seed = options.seed;
  place.threads = options.threads;
  place.cancel = options.cancel;
  place.progress = options.progress;
  const Problem problem = problem_of(lifetimes.all);
  const Placement placement = place_buffers(problem, place);

  Addresses result;
  auto placed = placement.offsets.begin();
  for (const Lifetimes::One& one : lifetimes.all) {
    const Bytes offset = one.bytes == 0 ? 0 : *placed++;
    result.arena_bytes = std::max(result.arena_bytes, offset + one.bytes);
    if (one.buffer == Lifetimes::One::kWorkspace) {
      schedule.steps[one.step].workspace_offset = offset;
    } else {
      schedule.buffers[one.buffer].offsets.push_back(offset);
    }
  }
  schedule.arena_bytes = result.arena_bytes;
  result.live_peak = lifetimes.live_peak;
  // Where place has rounded the size of a workspace up, its bound is no bound of the highest end.
  const auto is_whole = [&](const Lifetimes::One& one) {
    return one.bytes % problem.alignment == 0;
  };
  const bool rounded = !std::all_of(lifetimes.all.begin(), lifetimes.all.end(), is_whole);
  result.bound = rounded ? lifetimes.live_peak : placement.lower_bound;
  result.engine = placement.engine;
  result.seconds = placement.seconds;
  place_on_host(lifetimes, schedule, place, result);
  return result;
}

}  // namespace berth::schedule
