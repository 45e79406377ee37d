#pragma once

#include "csrc/schedule/offload/copy_plan.h"
#include "csrc/schedule/offload/problem.h"

#include <string>
#include <vector>

namespace berth::schedule::offload {

// A rule of others for copies, which knows no budget: an engine of plan_copies() by its name.
struct NamedRule {
  std::string name;
  CopyPlan (*plan)(const Problem& problem);
};

// From now on the rule is an engine, for ever. A name that is there already is ignored. Any thread.
void add_copy_rule(const NamedRule& rule);
// In the order in which they were added.
[[nodiscard]] std::vector<NamedRule> copy_rules();

}  // namespace berth::schedule::offload
