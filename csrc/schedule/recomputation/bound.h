#pragma once

#include "csrc/schedule/recomputation/problem.h"

#include <cstdint>
#include <functional>
#include <memory>

namespace berth::schedule {

// What no plan within the budget can cost less than, by prices on memory (Lagrange): each stage
// pays a price for each byte that it has above the budget, each run for what it reads. With the
// prices fixed, every value finds its cheapest way through the stages alone (kept, or recomputed),
// and every operator its cheapest alternative, so the sum is a bound for all plans, whatever the
// prices. They rise and fall with what is violated on average (volume algorithm, Barahona and Anbil
// 2000).
//
// A bound under any of the three rules: what is counted is what the rule counts or less. Memory
// while something is recomputed is looked at for that operator alone. Costs are in the problem's
// unit. Deterministic: a function of the problem and of the rounds and targets asked for. Not
// thread-safe; the problem outlives it. With more than kMostCells values times stages there are no
// prices: the bound is that without a budget.
class RecomputationBound {
 public:
  static constexpr std::size_t kMostCells = std::size_t{1} << 20;

  // Throws Error(kInput) for a problem that is none.
  explicit RecomputationBound(const StageProblem& problem);
  ~RecomputationBound();
  RecomputationBound(const RecomputationBound&) = delete;
  RecomputationBound& operator=(const RecomputationBound&) = delete;

  // So many more rounds, fewer where `stop` says so, which is asked before each; the bound never
  // falls. `target`: the cost of a plan that is known, to measure steps with, or 0. One round is
  // O(stages x (values + reads)); it ends early once the bound is at the target.
  void refine(
      unsigned rounds, std::int64_t target,
      const std::function<bool()>& stop = [] { return false; });

  // The best bound so far; that of one round without prices at least. StageProblem::kNever where
  // there is no plan.
  [[nodiscard]] std::int64_t cost() const noexcept;
  // Whether something that must run, or be there, cannot within the budget: there is no plan.
  [[nodiscard]] bool impossible() const noexcept;
  [[nodiscard]] unsigned rounds() const noexcept;

 private:
  class Prices;
  std::unique_ptr<Prices> prices_;
};

}  // namespace berth::schedule
