#include "csrc/schedule/offload/named_rules.h"

#include "csrc/core/named_list.h"

namespace berth::schedule::offload {
namespace {

NamedList<NamedRule>& rules() {
  static auto& kRules = *new NamedList<NamedRule>;
  return kRules;
}

}  // namespace

void add_offload_rule(const NamedRule& rule) { rules().add(rule); }

std::vector<NamedRule> offload_rules() { return rules().all(); }

}  // namespace berth::schedule::offload
