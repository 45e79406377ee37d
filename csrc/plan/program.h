#pragma once

#include "csrc/trace/trace.h"

#include <optional>
#include <string>

namespace berth {

// Where the program that made a plan differs from the one that loads it, in one line for a warning:
// "made with torch 2.10.0 (here 2.11.0), for rank 1 of 8 (here 0 of 8)". Nothing where they agree.
//
// The plan is served all the same: the requests decide. What one side does not know (an empty text,
// 0 bytes) is no difference; an empty tag is one.
[[nodiscard]] std::optional<std::string> program_difference(const trace::Program& plan,
                                                            const trace::Program& here);

}  // namespace berth
