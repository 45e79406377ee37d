#pragma once

#include "csrc/torch/step/record.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

namespace berth::torch::step {

// Whether a call may refuse a number, or a list of them, that is another than the recorded one:
// - a number must fit the types of the call's tensors;
// - a number with another sign, zero, infinite or none is another kind of number, but to
//   operators that take all kinds.
// What a kernel refuses among numbers of one kind is not seen, as bounds of hardtanh() that cross.
// `n`: the argument. Draws have may_refuse_numbers() beside. O(tensors).
[[nodiscard]] bool may_refuse_number(const c10::OperatorHandle& op,
                                     c10::ArrayRef<c10::IValue> arguments, std::size_t n,
                                     const c10::IValue& recorded);

// Whether the numbers of two calls that are equal but for these are of one kind each.
[[nodiscard]] bool same_kinds_of_numbers(const Call& a, const Call& b);

}  // namespace berth::torch::step
