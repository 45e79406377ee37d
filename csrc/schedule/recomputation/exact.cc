// Ours: what is alive, to the byte.
#include "csrc/schedule/recomputation/rules.h"

#include <algorithm>

namespace berth::schedule {
namespace {

class ExactModel : public StageModel {
 public:
  explicit ExactModel(const StageProblem& problem)
      : StageModel(problem), last_(problem.values.size()) {}

  StageCost evaluate(std::size_t t, std::uint32_t alternative, const Between& between,
                     Words runs) override {
    find_runs(t, alternative, between, runs);
    const StageProblem::StageOf& stage = problem_.stages[t];
    const std::int64_t budget = problem_.budget;
    StageCost total;
    ++call_;
    for_each_bit(runs, [&](std::size_t node) {
      for (const StageValue value : problem_.nodes[node].reads)
        last_[value] = {call_, static_cast<StageNode>(node)};
    });
    if (!stage.alternatives.empty())
      for (const StageValue value : stage.alternatives[alternative].reads)
        last_[value] = {call_, kClosing};
    // What nobody reads any more is released when the stage begins.
    std::int64_t live = between.before_bytes;
    for (std::size_t w = 0; w < between.before.size(); ++w)
      for (std::uint64_t left = between.before[w] & ~between.after[w]; left != 0;
           left &= left - 1) {
        const std::size_t value = w * 64 + static_cast<std::size_t>(std::countr_zero(left));
        if (last_[value].call != call_) live -= problem_.values[value].bytes;
      }
    total.peak = stage.fixed + live;
    for_each_bit(runs, [&](std::size_t id) {
      const StageProblem::NodeOf& node = problem_.nodes[id];
      for (const StageValue value : node.makes) live += problem_.values[value].bytes;
      // mutant: kept-fixed
      const std::int64_t base = stage.fixed + live;
      const bool due = is_due(t, id);
      const NodeAlternatives& mine = alternatives(static_cast<StageNode>(id), !due);
      // mutant: kept-over-later, kept-over-kept
      const bool may = node.over && !has(between.after, *node.over) && ends_at(*node.over, id);
      const StageAlternative& taken =
          pick(may && !node.always_in_place ? mine.any : mine.plain, budget - base, total);
      total.cost += may_run(t, id, due) ? taken.cost : StageProblem::kNever;
      // mutant: kept-workspace
      total.peak = std::max(total.peak, base + taken.workspace);
      if (observer_ != nullptr)
        observer_->runs(static_cast<StageNode>(id), taken,
                        may && std::count(mine.in_place.begin(), mine.in_place.end(), taken) > 0);
      // What nobody reads behind it does not outlive it.
      for (const StageValue value : node.reads)
        if (ends_at(value, id) && !has(between.after, value)) live -= problem_.values[value].bytes;
      // Nor does a second copy of what was kept.
      for (const StageValue value : node.makes)
        // mutant: kept-twice
        if (has(between.before, value) ||
            (last_[value].call != call_ && !has(between.after, value)))
          live -= problem_.values[value].bytes;
    });
    if (stage.alternatives.empty()) return total;
    const std::int64_t base = stage.closing + live;
    const StageAlternative& closing = pick_closing(t, alternative, budget - base, total);
    total.cost += closing.cost;
    total.peak = std::max(total.peak, base + closing.workspace);
    if (observer_ != nullptr) observer_->closes(closing);
    return total;
  }

 private:
  static constexpr StageNode kClosing = std::numeric_limits<StageNode>::max();
  struct Last {
    std::uint64_t call = 0;  // in which it was found
    StageNode reader = 0;
  };
  [[nodiscard]] bool ends_at(StageValue value, std::size_t node) const {
    return last_[value].call == call_ && last_[value].reader == node;
  }

  std::vector<Last> last_;
  std::uint64_t call_ = 0;
};

}  // namespace

std::unique_ptr<StageModel> make_exact_model(const StageProblem& problem) {
  return std::make_unique<ExactModel>(problem);
}

}  // namespace berth::schedule
