#pragma once

#include "csrc/schedule/recomputation/model.h"

#include <cstdint>
#include <memory>
#include <optional>

namespace berth::schedule {

// Of plans that are offered, the one that costs least within the problem's budget. The problem
// outlives it.
class CheapestPlan {
 public:
  explicit CheapestPlan(const StageProblem& problem) : model_(StageModel::make(problem)) {}

  // O(stages) evaluations.
  void offer(const Recomputation& plan) {
    ++offered_;
    const RecomputationCost cost = evaluate(*model_, plan);
    if (cost.excess != 0 || cost.cost >= StageProblem::kNever || (best_ && cost.cost >= cost_))
      return;
    best_ = plan;
    cost_ = cost.cost;
  }
  [[nodiscard]] const std::optional<Recomputation>& best() const noexcept { return best_; }
  [[nodiscard]] std::size_t offered() const noexcept { return offered_; }

 private:
  std::unique_ptr<StageModel> model_;
  std::optional<Recomputation> best_;
  std::int64_t cost_ = 0;
  std::size_t offered_ = 0;
};

}  // namespace berth::schedule
