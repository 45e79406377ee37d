#include "csrc/runtime/foretold.h"

#include "csrc/place/plan_step.h"
#include "csrc/runtime/plan_limit.h"
#include "csrc/trace/step_kinds.h"

#include <berth/place.h>

#include <optional>
#include <utility>

namespace berth {
namespace {

// A step shows what it leaves behind in the next one, and counts once it was seen twice.
constexpr int kSteps = 3;

// The run that has each kind's steps in a row.
Trace run_of(std::span<const StepRequests> kinds) {
  Trace run;
  run.lanes.emplace_back();
  const auto add = [&](trace::Event event) {
    run.entries.push_back({.tick = run.entries.size(), .event = event});
  };
  trace::BlockId made = 0;
  add(trace::StepMark{});
  for (const StepRequests& kind : kinds) {
    trace::BlockId last = 0, first = 0;  // of the steps before and now, the block before the first
    for (int step = 0; step < kSteps; ++step) {
      last = std::exchange(first, made);
      for (const StepRequests::Event& event : kind.events) {
        if (event.bytes != 0)
          add(trace::Request{.id = ++made, .bytes = event.bytes});
        else if (!event.of_last)
          add(trace::Free{first + 1 + event.request});
        // mutant: foretold-left
        else if (step > 0)
          add(trace::Free{last + 1 + event.request});
      }
      add(trace::StepMark{});
    }
  }
  return run;
}

}  // namespace

std::shared_ptr<const Foretold> foretell(std::span<const StepRequests> kinds,
                                         const trace::Program& program, Bytes alignment,
                                         double seconds) {
  StepKinds steps;
  steps.learn(run_of(kinds));
  const std::optional<KindPlan> frame =
      skeleton_within(steps.kinds(), program, alignment, kMaxBytes);
  if (!frame) return nullptr;
  PlaceOptions options;
  options.time_limit_seconds = seconds;
  const Placement placement = place_buffers(make_problem(*frame), options);
  auto result = std::make_shared<Foretold>();
  result->plan =
      std::make_shared<const PlanLookup>(with_placement(frame->plan, placement, options));
  result->kinds = known(steps.kinds());
  return result;
}

}  // namespace berth
