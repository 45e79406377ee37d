#pragma once

#include "csrc/core/bytes.h"
#include "csrc/torch/step/instructions.h"

namespace berth::torch::step {

// What a step holds on the CPU, as its allocator counts: bytes that were asked for, unrounded.
struct StepMemory {
  Bytes peak = 0;      // with what is resident
  Bytes resident = 0;  // there before the step and after it
};

// What an executor holds that follows the instructions, and the body beside it, as long as it has
// tensors where the two records of it had them. A body that reads something back does not have yet
// what it makes after it. Does once more, with numbers, what `Executor` does with storages; the two
// change together. O(instructions + storages) for each time that the body reads something back.
[[nodiscard]] StepMemory memory_of(const Program& program, const Instructions& instructions);

}  // namespace berth::torch::step
