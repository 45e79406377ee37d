#include "csrc/schedule/retention/named_rules.h"

#include "csrc/core/named_list.h"

namespace berth::schedule {
namespace {

NamedList<NamedRetentionRule>& named_retention_rules() {
  static auto& kRules = *new NamedList<NamedRetentionRule>;
  return kRules;
}

}  // namespace

void add_retention_rule(const NamedRetentionRule& rule) { named_retention_rules().add(rule); }

std::vector<NamedRetentionRule> retention_rules() { return named_retention_rules().all(); }

}  // namespace berth::schedule
