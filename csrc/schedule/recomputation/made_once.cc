#include "csrc/schedule/recomputation/made_once.h"

namespace berth::schedule {

std::vector<KeptRows> rows_made_once(const StageProblem& problem, std::size_t first,
                                     std::size_t last,
                                     const std::vector<std::uint8_t>& alternatives,
                                     const std::vector<bool>& before,
                                     const std::vector<bool>& after) {
  const std::size_t values = problem.values.size();
  std::vector<std::size_t> made(values, 0), used(values, 0);  // again, and last; 0: never
  std::vector<StageValue> wanted;
  for (std::size_t t = first; t <= last; ++t) {
    wanted.clear();
    if (!problem.stages[t].alternatives.empty())
      wanted = problem.stages[t].alternatives[alternatives[t]].reads;
    if (t == last)
      for (StageValue v = 0; v < values; ++v)
        if (after[v]) wanted.push_back(v);
    while (!wanted.empty()) {
      const StageValue v = wanted.back();
      wanted.pop_back();
      used[v] = t;
      // mutant: kept-once
      if (before[v] || made[v] != 0) continue;
      const StageProblem::NodeOf& maker = problem.nodes[problem.values[v].maker];
      for (const StageValue result : maker.makes)
        if (!before[result]) made[result] = t;
      wanted.insert(wanted.end(), maker.reads.begin(), maker.reads.end());
    }
  }
  std::vector<KeptRows> rows(values);
  for (StageValue v = 0; v < values; ++v) {
    const std::size_t from = before[v] ? first : made[v] + 1;
    if (problem.values[v].keepable && used[v] != 0 && from <= used[v])
      rows[v] = {static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(used[v])};
  }
  return rows;
}

void keep_made_once(const StageProblem& problem, std::size_t first, std::size_t last,
                    const std::vector<bool>& before, const std::vector<bool>& after,
                    Recomputation& plan) {
  const std::vector<KeptRows> rows =
      rows_made_once(problem, first, last, plan.alternatives, before, after);
  for (StageValue v = 0; v < rows.size(); ++v)
    for (std::uint32_t row = rows[v].first; row != 0 && row <= rows[v].last; ++row)
      plan.kept.add(row, v);
}

}  // namespace berth::schedule
