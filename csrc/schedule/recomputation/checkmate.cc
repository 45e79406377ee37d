// Checkmate (Jain et al.: Checkmate: Breaking the Memory Wall with Optimal Tensor
// Rematerialization, MLSys 2020): one stage an operator, each runs it; no workspace, one
// alternative each.
#include "csrc/schedule/recomputation/rules.h"

#include <algorithm>

namespace berth::schedule {
namespace {

class CheckmateModel : public StageModel {
 public:
  explicit CheckmateModel(const StageProblem& problem)
      : StageModel(problem), last_(problem.values.size(), 0) {}

  StageCost evaluate(std::size_t t, std::uint32_t alternative, const Between& between,
                     Words runs) override {
    find_runs(t, alternative, between, runs);
    StageCost total;
    for_each_bit(runs, [&](std::size_t node) {
      for (const StageValue value : problem_.nodes[node].reads)
        last_[value] = static_cast<StageNode>(node);
    });
    std::int64_t live = problem_.stages[t].fixed + between.before_bytes;
    total.peak = live;
    for_each_bit(runs, [&](std::size_t id) {
      const StageProblem::NodeOf& node = problem_.nodes[id];
      const bool due = is_due(t, id);
      const StageAlternative& taken = alternatives(static_cast<StageNode>(id), !due).plain.front();
      total.cost += may_run(t, id, due) ? taken.cost : StageProblem::kNever;
      for (const StageValue value : node.makes) live += problem_.values[value].bytes;
      total.peak = std::max(total.peak, live);
      for (const StageValue value : node.reads)
        // mutant: kept-freed
        if (last_[value] == id && !has(between.after, value)) live -= problem_.values[value].bytes;
    });
    return total;
  }

 private:
  std::vector<StageNode> last_;  // reader of a value that runs in the stage
};

}  // namespace

std::unique_ptr<StageModel> make_checkmate_model(const StageProblem& problem) {
  return std::make_unique<CheckmateModel>(problem);
}

}  // namespace berth::schedule
