#include "csrc/schedule/baselines/made_once.h"

namespace berth::schedule {

void keep_made_once(const StageProblem& problem, std::size_t first, std::size_t last,
                    const std::vector<bool>& before, const std::vector<bool>& after,
                    Retention& plan) {
  const std::size_t values = problem.values.size();
  std::vector<std::size_t> made(values, 0), used(values, 0);  // again, and last; 0: never
  std::vector<StageValue> wanted;
  for (std::size_t t = first; t <= last; ++t) {
    wanted.clear();
    if (!problem.stages[t].alternatives.empty())
      wanted = problem.stages[t].alternatives[plan.alternatives[t]].reads;
    if (t == last)
      for (StageValue v = 0; v < values; ++v)
        if (after[v]) wanted.push_back(v);
    while (!wanted.empty()) {
      const StageValue v = wanted.back();
      wanted.pop_back();
      used[v] = t;
      if (before[v] || made[v] != 0) continue;
      const StageProblem::NodeOf& maker = problem.nodes[problem.values[v].maker];
      for (const StageValue result : maker.makes)
        if (!before[result]) made[result] = t;
      wanted.insert(wanted.end(), maker.reads.begin(), maker.reads.end());
    }
  }
  for (StageValue v = 0; v < values; ++v) {
    if (!problem.values[v].keepable || used[v] == 0) continue;
    for (std::size_t row = before[v] ? first : made[v] + 1; row <= used[v]; ++row)
      plan.kept.add(row, v);
  }
}

}  // namespace berth::schedule
