#include "csrc/schedule/offload/named_rules.h"

#include "csrc/core/named_list.h"

namespace berth::schedule::offload {
namespace {

NamedList<NamedRule>& rules() {
  static auto& kRules = *new NamedList<NamedRule>;
  return kRules;
}

}  // namespace

void add_copy_rule(const NamedRule& rule) { rules().add(rule); }

std::vector<NamedRule> copy_rules() { return rules().all(); }

}  // namespace berth::schedule::offload
