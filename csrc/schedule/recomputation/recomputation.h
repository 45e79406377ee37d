#pragma once

#include "csrc/schedule/recomputation/model.h"

#include <berth/schedule.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace berth::schedule {

// Engines are those of recomputation_engines(); iterations are moves that are tried.
struct RecomputationOptions : PlannerOptions {
  // The result is never worse than this one. One that does not fit is where the search begins.
  std::optional<Recomputation> given = {};
};

struct RecomputationResult {
  // Within the budget, or nothing where none was found.
  std::optional<Recomputation> plan;
  std::int64_t cost = 0, peak = 0;
  std::int64_t base_cost = 0, base_peak = 0;  // with everything kept, whatever the budget
  std::int64_t cost_bound = 0;                // no plan within the budget takes less
  std::int64_t least_budget = 0;              // no plan fits less than this
  std::string why_not;                        // where there is no plan
  bool proven_optimal = false;
  std::string engine;
  double seconds = 0;
  std::uint64_t moves = 0, evaluations = 0;

  [[nodiscard]] double gap() const noexcept {
    return cost_bound == 0 ? 0.0
                           : static_cast<double>(cost) / static_cast<double>(cost_bound) - 1.0;
  }
};

// Bytes that any plan has at once, whatever it keeps: all that the largest operator needs.
// O(stages and what their operators read).
[[nodiscard]] std::int64_t least_budget_of(const StageProblem& problem);

// Finds what to keep and what to recompute within the problem's budget so that the step takes
// little time, with a bound that says how far from the least it can be. Throws Error(kInput) for a
// problem that is none, Error(kUsage) for an unknown engine and for a given plan of another
// problem.
[[nodiscard]] RecomputationResult plan_recomputation(const StageProblem& problem,
                                                     const RecomputationOptions& options = {});

// "auto" first (plans by cuts and Chen's, then the search), then "chen" (Chen et al. 2016), "cut"
// (minimum cuts of a priced step), "keep" (everything) and "recompute" (the search alone).
[[nodiscard]] const std::vector<std::string>& recomputation_engines();

}  // namespace berth::schedule
