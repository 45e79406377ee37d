#include "csrc/torch/recording/operator_traits.h"

#include "csrc/torch/recording/per_recorder.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/record.h"

#include <unordered_map>

namespace berth::torch {

namespace {

OperatorTraits make_traits(const c10::OperatorHandle& op, Recorder& recorder) {
  using trace::Access;
  const step::OperatorFacts& facts = step::facts_of(op);
  OperatorTraits traits;
  traits.name = recorder.intern(step::name_of(op));
  traits.random = facts.random;
  const auto& arguments = op.schema().arguments();
  for (std::size_t n = 0; n < arguments.size(); ++n) {
    // `out=` arguments come by keyword, those changed in place do not.
    traits.arguments.push_back(!facts.writes[n]            ? Access::kRead
                               : arguments[n].kwarg_only() ? Access::kWrite
                                                           : Access::kReadWrite);
    traits.changes_state |= facts.writes[n];
  }
  return traits;
}

}  // namespace

const OperatorTraits& traits_of(const c10::OperatorHandle& op, Recorder& recorder) {
  // An operator's schema stays where it is as long as it is registered.
  using Known = std::unordered_map<const c10::FunctionSchema*, OperatorTraits>;
  thread_local PerRecorder<Known> known_of;
  Known& known = known_of.get(recorder);
  const auto found = known.find(&op.schema());
  if (found != known.end()) [[likely]]
    return found->second;
  return known.emplace(&op.schema(), make_traits(op, recorder)).first->second;
}

}  // namespace berth::torch
