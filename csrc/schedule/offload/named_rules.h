#pragma once

#include "csrc/schedule/offload/offload_plan.h"
#include "csrc/schedule/offload/problem.h"

#include <string>
#include <vector>

namespace berth::schedule::offload {

// A rule of others for copies, which knows no budget: an engine of plan_offload() by its name.
struct NamedRule {
  std::string name;
  OffloadPlan (*plan)(const Problem& problem);
};

// From now on the rule is an engine, for ever. A name that is there already is ignored. Any thread.
void add_offload_rule(const NamedRule& rule);
// In the order in which they were added.
[[nodiscard]] std::vector<NamedRule> offload_rules();

}  // namespace berth::schedule::offload
