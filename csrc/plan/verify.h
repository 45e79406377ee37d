#pragma once

#include "csrc/plan/plan.h"
#include "csrc/trace/step.h"
#include "csrc/trace/step_kinds.h"

#include <optional>
#include <span>
#include <string>

namespace berth {

// Whether a plan keeps its invariants whatever program follows it: alignment, bounds, legal arcs
// and sequences, and disjoint bytes of all slots that can be alive together, over wrap-around
// lifetimes, lanes (apart unless edges order both ends before the other's births) and branches.
// Returns the first violation, in one line that names the slots.
//
// A sweep over births and ends with an address-ordered set: O(n log n) time, O(n) memory. Shares
// no code with the planner.
[[nodiscard]] std::optional<std::string> verify(const Plan& plan);

// Also whether the plan covers this step: same requests in the same order and no slot that dies
// before its request does.
[[nodiscard]] std::optional<std::string> verify(const Plan& plan, const Step& step);

// Also whether each kind of step has a path: same requests in the same order, or, of a bucket,
// slots that are as large.
[[nodiscard]] std::optional<std::string> verify(const Plan& plan, std::span<const StepKind> kinds);

}  // namespace berth
