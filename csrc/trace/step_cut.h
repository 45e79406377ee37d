#pragma once

#include "csrc/trace/run_log.h"
#include "csrc/trace/step.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace berth::trace {

// The most steps, as marks tell them, that one step of berth covers: where they alternate, as with
// a mark a micro-batch and an optimizer every so often.
inline constexpr std::uint32_t kMaxPattern = 16;

// Where a run is cut into equal steps: consecutive intervals of ticks, bounds[i] to bounds[i + 1],
// in which the requests of lane `primary` repeat every `pattern` intervals. An interval is what
// lies between two marks, or one period found in the requests.
struct StepCut {
  LaneId primary = 0;
  Bytes bytes = 0;           // that it asks for in them
  std::vector<Tick> bounds;  // ascending, at least 2 * pattern + 1
  std::uint32_t pattern = 1;
  bool at_marks = false;
};

// Cuts at the marks of the lane that has most of them. Accepts what covers a quarter of the
// intervals or more; of several, the latest that covers at least half of what the best one does.
// Marked lanes win over others, of equal ones that which asks for most.
[[nodiscard]] std::optional<StepCut> cut_at_marks(const RunLog& log, const StepOptions& options,
                                                  std::string& why_not);

// Cuts by the period of the requests themselves, where a run has no marks or they do not help. A
// period has StepOptions::most_marks at most: a long cycle of unequal steps is none.
[[nodiscard]] std::optional<StepCut> cut_by_period(const RunLog& log, const StepOptions& options,
                                                   std::string& why_not);

}  // namespace berth::trace
