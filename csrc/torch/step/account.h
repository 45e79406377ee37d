#pragma once

#include "csrc/core/bytes.h"
#include "csrc/runtime/foretold.h"
#include "csrc/torch/step/instructions.h"

namespace berth::torch::step {

// The memory of a step on the CPU, as its allocator counts: requested bytes, not rounded.
struct StepMemory {
  Bytes peak = 0;      // with what is resident
  Bytes resident = 0;  // there before the step and after it
};

// The memory of an executor that runs the instructions, and of the body beside it. It assumes that
// the body has tensors as long as in the two records. When the body reads a value back, it has not
// made the values behind that point yet. The walk does with numbers what `Executor` does with
// bytes, by the same table of buffers (`buffers.h`). O(instructions + storages) for each value that
// is read back.
[[nodiscard]] StepMemory memory_of(const Program& program, const Instructions& instructions);

// What that executor and the body ask of the allocator of one device, in order, as far as records
// tell: kernels ask as they did then. Copies of residents are left out.
[[nodiscard]] StepRequests requests_of(const Program& program, const Instructions& instructions,
                                       c10::Device device);

}  // namespace berth::torch::step
