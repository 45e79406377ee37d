#pragma once

#include "csrc/trace/trace.h"

#include <atomic>

namespace berth {

// Marks the ends of steps in a run that marks none, where its requests tell: true if it did.
//
// Within a step what was asked for last tells what comes next. Where a step ends it does not, as a
// step of any kind may follow; and what a step begins with does not tell what came before it
// (Harris 1955, who divides sentences into words like this). So a step may end wherever the same
// requests, with as much alive, were followed or preceded by several. Of these places those are
// taken that let the run be told in the fewest words: the pieces that differ, and a little for each
// cut, more where much is alive. Nothing is found unless nearly all of the pieces come again: the
// same ones, or, as with inputs of many lengths, others of equally many requests.
//
// Looks at the lane that made most requests, 4,096 at least, over 32, 16, 8 and 4 of them.
// O(requests times places that differ), these at most 256; 150 bytes a request. A cancelled search
// finds nothing.
[[nodiscard]] bool mark_steps(Trace& trace, const std::atomic<bool>* cancel = nullptr);

}  // namespace berth
