#pragma once

#include "csrc/schedule/offload/problem.h"

namespace berth::schedule::offload {

// The first use after the border; kNobody: none. And whether an operator of that kind reads the
// value before it.
[[nodiscard]] Index first_use_after(const Problem& problem, Value value);
[[nodiscard]] bool is_input_of(const Problem& problem, Value value, OperatorKind kind);

}  // namespace berth::schedule::offload
