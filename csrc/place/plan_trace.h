#pragma once

#include "csrc/plan/plan.h"
#include "csrc/trace/step.h"
#include "csrc/trace/step_kinds.h"
#include "csrc/trace/trace.h"

#include <berth/place.h>

#include <optional>
#include <string>
#include <vector>

namespace berth {

// What repeats in a recorded run: the step of one cycle, or steps of several kinds that come in any
// turns. At most one of the two is there.
struct Repeats {
  std::optional<Step> step;
  std::vector<StepKind> kinds;
  std::string why_not;  // where nothing does, in one line

  [[nodiscard]] bool any() const noexcept { return step || !kinds.empty(); }
};

// O(entries) at marks, O(entries log entries) without.
[[nodiscard]] Repeats find_repeats(const Trace& trace);

// Plans it: see plan_step() and plan_kinds(). `trace` is the one that it was found in. Requires
// any().
[[nodiscard]] Plan plan_repeats(const Repeats& repeats, const Trace& trace, Bytes alignment,
                                const PlaceOptions& options = {});

}  // namespace berth
