#pragma once

#include "csrc/place/plan_trace.h"
#include "csrc/trace/step.h"
#include "csrc/trace/trace.h"

#include <cstdint>
#include <optional>

namespace berth::replay {

// The ticks of a run, half-open, that are taken for one step of its program.
struct StepWindow {
  trace::Tick first = 0, last = 0;
  bool seen_twice = false;  // false: taken for a step because the run has no other
  // Where the step begins and ends is known. Else the history may begin or end inside it, and what
  // lives at its end is no sign of what a whole step leaves alive.
  bool whole = true;
};

// The step of a run that is to be repeated: the last period of the step that was found; where none
// was found, what lies between the only two marks, else between the setup and the only mark, else
// between the setup and the end. Setup are the first requests, as far as they stay till the last
// one. Of a run that ends inside a step the last period is taken, where its last requests came
// before. Nothing where steps differ from each other, where nothing is freed, and of a stream:
// hardly a size comes twice, and no block lives long. O(entries).
[[nodiscard]] std::optional<StepWindow> step_to_repeat(const Trace& trace, const Repeats& repeats);

// The run up to the end of the window, and then what the window requests, frees and marks, `times`
// more. With `marks` each repeat ends with a mark, where the window itself has none.
//
// What lives at the end of a repeat does not grow. A block that outlives the window is freed in the
// next repeat: where the window frees its predecessor, which is the block one or a few periods
// earlier, else one of equal size; else where the run goes on like the window and frees it. Of what
// is left nothing is known. In a step that was seen twice it goes just before its successor is
// requested. What the only step leaves, as state of an optimizer, stays, and is not requested
// again. Where the window may be no whole step it goes as the next repeat begins. O(entries).
[[nodiscard]] Trace repeat_step(const Trace& trace, const StepWindow& window, std::uint32_t times,
                                bool marks = false);

}  // namespace berth::replay
