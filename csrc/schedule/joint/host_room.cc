#include "csrc/schedule/joint/host_room.h"

#include "csrc/schedule/recomputation/model.h"

#include <algorithm>
#include <vector>

namespace berth::schedule {
namespace {

std::int64_t least_cost(const std::vector<StageAlternative>& alternatives) {
  std::int64_t least = alternatives.empty() ? 0 : alternatives.front().cost;
  for (const StageAlternative& alternative : alternatives)
    least = std::min(least, alternative.cost);
  return least;
}

// Of stage t, nothing recomputed; costs are nanoseconds.
std::int64_t ns_of(const StageProblem& problem, std::size_t t) {
  std::int64_t ns = 0;
  for (const StageNode n : problem.stages[t].must_run) {
    const StageProblem::NodeOf& node = problem.nodes[n];
    ns += least_cost(node.first.empty() ? node.in_place : node.first);
  }
  const auto& alternatives = problem.stages[t].alternatives;
  return alternatives.empty() ? ns : ns + least_cost(alternatives.front().all);
}

Bytes reloaded_bytes(std::int64_t ns, Bytes per_second) {
  const double bytes = static_cast<double>(ns) * 1e-9 * static_cast<double>(per_second);
  return static_cast<Bytes>(std::min(bytes, static_cast<double>(StageProblem::kMostBytes / 4)));
}

bool has_backward_part(const StageProblem& problem) {
  return problem.stages.size() > 1 && problem.stages[1].must_run.empty();
}

}  // namespace

Bytes host_room(const StageProblem& problem, const graph::CopyRates& rates) {
  if (!has_backward_part(problem)) return 0;
  std::int64_t rest = 0;
  for (std::size_t t = 1; t < problem.stages.size(); ++t) rest += ns_of(problem, t);
  const std::int64_t above =
      evaluate(*StageModel::make(problem), keep_everything(problem)).peak - problem.budget;
  return std::min({reloaded_bytes(ns_of(problem, 0), rates.out), reloaded_bytes(rest, rates.in),
                   static_cast<Bytes>(std::max<std::int64_t>(above, 0))});
}

void add_host_room(StageProblem& problem, Bytes bytes, const graph::CopyRates& rates) {
  const auto most = static_cast<std::int64_t>(bytes);
  problem.budget += most;
  std::int64_t rest = 0;
  for (std::size_t t = problem.stages.size(); t-- > 1;) {
    StageProblem::StageOf& stage = problem.stages[t];
    rest += ns_of(problem, t);
    const std::int64_t missing =
        most - std::min(most, static_cast<std::int64_t>(reloaded_bytes(rest, rates.in)));
    stage.fixed += missing;
    stage.closing += missing;
  }
}

}  // namespace berth::schedule
