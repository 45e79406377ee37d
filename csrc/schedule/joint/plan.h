#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/graph.h"

#include <berth/schedule.h>

#include <string>

namespace berth::schedule {

// What the largest operator of a step needs alone, in its smallest way, beside what is resident:
// less is enough for no schedule.
struct LeastBudget {
  Bytes bytes = 0;
  std::string largest;  // in words
};
[[nodiscard]] LeastBudget least_budget(const graph::Graph& graph);

}  // namespace berth::schedule
