#include "csrc/papers/offload_rules.h"

#include "csrc/schedule/offload/uses.h"

#include <algorithm>

namespace berth::schedule::offload {

OffloadPlan vdnn_plan(const Problem& problem) {
  OffloadPlan plan = keep_all(problem);
  plan.waits = OffloadPlan::Waits::kEachOperator;
  for (Value v = 0; v < problem.values.size(); ++v) {
    const Index use = first_use_after(problem, v);
    if (use == kNobody || !may(problem, v, Fate::kOffload) ||
        !is_input_of(problem, v, OperatorKind::kConvolution))
      continue;
    plan.choices[v] = {Fate::kOffload, use - 1};
  }
  return plan;
}

OffloadPlan dymem_plan(const Problem& problem) {
  OffloadPlan plan = keep_all(problem);
  plan.waits = OffloadPlan::Waits::kBorder;
  struct Reload {
    Index use;
    Value value;
  };
  std::vector<Reload> reloads;
  for (Value v = 0; v < problem.values.size(); ++v) {
    const Index use = first_use_after(problem, v);
    if (use == kNobody || !may(problem, v, Fate::kOffload)) continue;
    if (is_input_of(problem, v, OperatorKind::kConvolution) ||
        is_input_of(problem, v, OperatorKind::kPooling) ||
        is_input_of(problem, v, OperatorKind::kActivation))
      reloads.push_back({use, v});
  }
  std::stable_sort(reloads.begin(), reloads.end(),
                   [](const Reload& a, const Reload& b) { return a.use < b.use; });
  constexpr std::size_t kMostAhead = 2;
  std::vector<Index> convolutions;  // where the inputs of convolutions so far are used
  for (const auto& [use, v] : reloads) {
    if (is_input_of(problem, v, OperatorKind::kConvolution)) convolutions.push_back(use);
    const Index trigger = convolutions.size() > kMostAhead
                              ? convolutions[convolutions.size() - 1 - kMostAhead]
                              : problem.border;
    // The first operator of the backward part has none before it that could trigger.
    plan.choices[v] = {Fate::kOffload, std::min(trigger, use - 1)};
  }
  return plan;
}

}  // namespace berth::schedule::offload
