#pragma once

#include "csrc/schedule/order/problem.h"

#include <berth/schedule.h>

namespace berth::schedule {

using berth::kMostOrdered;
using berth::order_engines;
using berth::OrderOptions;
using berth::OrderProgress;
using berth::OrderResult;

// order_operators() of a problem that was derived.
[[nodiscard]] OrderResult plan_order(const OrderProblem& problem, const OrderOptions& options = {});

}  // namespace berth::schedule
