#pragma once

#include "csrc/schedule/order/problem.h"

#include <functional>
#include <string_view>
#include <vector>

namespace berth::schedule {

// An order that is made in one pass.
struct NamedOrder {
  std::string_view name;
  Order order;
};

// All of them, each topological: by number, depth first, least memory at the peak first (LPMF),
// least net growth, as soon as possible, and backwards from the end. None is good on all graphs: on
// the open ones the best is another each time. O(n ready nodes) each. Those that are not ready when
// `stop` says so are left out.
[[nodiscard]] std::vector<NamedOrder> constructive_orders(
    const OrderProblem& problem, const std::function<bool()>& stop = [] { return false; });

}  // namespace berth::schedule
