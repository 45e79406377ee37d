#pragma once

#include "csrc/torch/step/spills.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <functional>

namespace berth::torch::step {

// Runs a call in parts. The call does the same for each element of its lists (see
// OperatorFacts::listwise), so that it needs no more in memory than a part's elements. Returns
// false, and does nothing, where the call is none of these, or where spills are off. A part takes
// an eighth of what all known tensors take, or one element.
bool run_in_parts(const c10::OperatorHandle& op, c10::Stack* stack,
                  const std::function<void(c10::Stack* part)>& run);

// Runs a call whose bytes are there. Where an allocator that is not berth's has no memory left for
// it, tensors leave for the host and the call runs again, as long as some leave. A call that writes
// to what it takes does not run again: it may have begun to.
void run_with_room(const c10::OperatorHandle& op, c10::Stack* stack,
                   const std::function<void(c10::Stack* part)>& run);

// Runs a call with the bytes of all that it takes there. Where there is no room for that, or for
// the call itself, between the blocks of what it takes, all tensors leave, what it takes comes back
// side by side, with room for what the call asked for, and the call runs again, a few times. A call
// that has begun does so only if it writes nothing that it takes, or what can be written again: a
// copy is made of what it writes unseen.
void run_side_by_side(const c10::OperatorHandle& op, c10::Stack* stack,
                      const std::function<void(c10::Stack* part)>& run);

// Runs a call with the bytes of all that it takes there, in parts where it can be. `run` gets a
// stack with arguments and leaves the results there.
template <typename Run>
void run_with_bytes(const c10::OperatorHandle& op, c10::Stack* stack, const Run& run) {
  if (!Spills::on()) [[likely]] {
    run(stack);
    return;
  }
  if (run_in_parts(op, stack, run)) return;
  run_side_by_side(op, stack, run);
}

}  // namespace berth::torch::step
