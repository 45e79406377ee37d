#include "csrc/place/plan_trace.h"

#include "csrc/place/plan_step.h"
#include "csrc/trace/step_coverage.h"

namespace berth {
namespace {

// Whether the steps of a run are of several kinds that come in any turns, rather than those of one
// cycle: together they cover clearly more of it.
bool comes_in_turns(const Trace& trace, const std::optional<Step>& step, const StepKinds& kinds) {
  constexpr double kClearly = 0.01;
  if (kinds.kinds().empty() || (step && kinds.are_steps_of(*step))) return false;
  if (!step) return true;
  std::uint64_t covered = 0, all = 0;
  for (const StepKind& kind : kinds.kinds()) covered += kind.seen * kind.requests.size();
  const StepCoverage coverage = coverage_of(trace, *step);
  for (const auto& lane : coverage.lanes) all += lane.requests;
  return static_cast<double>(covered) >
         (coverage.share_of_requests() + kClearly) * static_cast<double>(all);
}

}  // namespace

Repeats find_repeats(const Trace& trace) {
  Repeats repeats;
  repeats.step = extract_step(trace, {}, &repeats.why_not);
  StepKinds kinds;
  kinds.learn(trace);
  if (comes_in_turns(trace, repeats.step, kinds)) {
    repeats.step.reset();
    repeats.kinds.assign(kinds.kinds().begin(), kinds.kinds().end());
  }
  return repeats;
}

Plan plan_repeats(const Repeats& repeats, const Trace& trace, Bytes alignment,
                  const PlaceOptions& options) {
  if (repeats.step) return plan_step(*repeats.step, trace, alignment, options);
  return plan_kinds(repeats.kinds, trace.program, alignment, options);
}

}  // namespace berth
