#pragma once

#include "csrc/schedule/offload/offload_plan.h"
#include "csrc/schedule/offload/problem.h"
#include "csrc/schedule/offload/timeline.h"

#include <berth/schedule.h>

#include <cstdint>
#include <string>
#include <vector>

namespace berth::schedule::offload {

// Engines are those of copy_engines(): "offload" and "recompute" use one way out of the device,
// "joint" both; "auto" runs these three one after the other and goes on from the best. "keep"
// keeps everything; a rule of offload_rules() is followed, whatever the budget. Iterations are
// plays of the timeline, of each of the searches.
struct OffloadOptions : PlannerOptions {
  Bytes least_bytes = Bytes{1} << 20;  // smaller values are not copied: latency
};

struct OffloadResult {
  OffloadPlan plan;
  Outcome outcome;            // excess: no plan that was found fits
  std::uint64_t kept_ns = 0;  // with all kept: no plan is faster
  Bytes kept_peak = 0;
  // No plan has a lower peak: residents and what one operator reads, makes and works in.
  Bytes least_peak = 0;
  Bytes offloaded_bytes = 0;     // each way
  std::uint64_t recomputed = 0;  // operators that are recomputed
  std::string engine;            // that found it
  double seconds = 0;
  std::uint64_t simulations = 0;
};

// Decides for each value whether it is kept, offloaded or recomputed, so that the step fits
// machine.budget and takes little time. Always returns a plan: where none fits, one with little
// excess. For the same budget of simulations "auto" is never slower than "offload" and "recompute"
// alone. `problem` was derived. Throws Error(kUsage) for an unknown engine.
//
// A simulation is O(operators + reads): 0.1 ms for 2,000 operators.
[[nodiscard]] OffloadResult plan_offload(const Problem& problem, const Machine& machine,
                                         const OffloadOptions& options = {});

// "auto" first, then "joint", "offload", "recompute", "keep", and the rules of offload_rules().
[[nodiscard]] std::vector<std::string> copy_engines();

}  // namespace berth::schedule::offload
