#include "csrc/schedule/recomputation/named_rules.h"

#include "csrc/core/named_list.h"

namespace berth::schedule {
namespace {

NamedList<NamedRecomputationRule>& named_recomputation_rules() {
  static auto& kRules = *new NamedList<NamedRecomputationRule>;
  return kRules;
}

}  // namespace

void add_recomputation_rule(const NamedRecomputationRule& rule) {
  named_recomputation_rules().add(rule);
}

std::vector<NamedRecomputationRule> recomputation_rules() {
  return named_recomputation_rules().all();
}

}  // namespace berth::schedule
