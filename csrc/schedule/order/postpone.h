#pragma once

#include "csrc/schedule/order/problem.h"

#include <span>

namespace berth::schedule {

// The same order, but that operators which make no value and take none but numbers from outside
// come as late as they may: just before the first that must follow them, else at the end. They
// change residents alone, as the decay of weights does, and what reads those may be recomputed only
// as long as they have not. No bytes depend on when they run, but those of their numbers. `problem`
// is derived, `order` one of its orders. O(edges log nodes).
[[nodiscard]] Order postpone_changes(const OrderProblem& problem, std::span<const Node> order);

}  // namespace berth::schedule
