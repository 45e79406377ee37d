#pragma once

#include "csrc/torch/step/record.h"

// Steps in which data decide shapes: a mask selects rows, a router sends tokens to experts.
//
// Two such steps call the same operators in the same order, on tensors of other sizes. Where the
// sizes differ, the calls are barriers: the body runs them, on whatever sizes it has, and has their
// results itself. All other calls run by the schedule.
namespace berth::torch::step {

// Whether both records are of one step, in which data decide shapes. Lets what differs vary in
// `record` then. Sizes may differ behind the first result that data decide. What comes from outside
// has one size, but for what an operator inside of a barrier made. False where they are not, and
// `record` is as it was.
[[nodiscard]] bool let_shapes_vary(StepRecord& record, const StepRecord& other);

}  // namespace berth::torch::step
