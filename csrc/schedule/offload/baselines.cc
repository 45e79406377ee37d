#include "csrc/schedule/offload/baselines.h"

#include <algorithm>

namespace berth::schedule::offload {

Index first_use_after(const Problem& problem, Value v) {
  const std::vector<Index>& readers = problem.values[v].readers;
  const auto found = std::lower_bound(readers.begin(), readers.end(), problem.border);
  return found == readers.end() ? kNobody : *found;
}

bool is_input_of(const Problem& problem, Value v, OperatorKind kind) {
  const std::vector<Index>& readers = problem.values[v].readers;
  return std::any_of(readers.begin(), readers.end(), [&](Index reader) {
    return reader < problem.border && problem.operators[reader].kind == kind;
  });
}

CopyPlan vdnn_plan(const Problem& problem) {
  CopyPlan plan = keep_all(problem);
  plan.waits = CopyPlan::Waits::kEachOperator;
  for (Value v = 0; v < problem.values.size(); ++v) {
    const Index use = first_use_after(problem, v);
    if (use == kNobody || !may(problem, v, Fate::kOffload) ||
        !is_input_of(problem, v, OperatorKind::kConvolution))
      continue;
    plan.choices[v] = {Fate::kOffload, use - 1};
  }
  return plan;
}

CopyPlan dymem_plan(const Problem& problem) {
  CopyPlan plan = keep_all(problem);
  plan.waits = CopyPlan::Waits::kBorder;
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
