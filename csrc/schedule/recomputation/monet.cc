// MONeT (Shah, Wu, Mohan, Chidambaram, Kraehenbuehl: Memory Optimization for Deep Networks, ICLR
// 2021): its inequalities as its published solver states them, double counts included, so that its
// plans replay to exactly their objective.
#include "csrc/schedule/recomputation/rules.h"

#include <algorithm>

namespace berth::schedule {
namespace {

class MonetModel : public StageModel {
 public:
  explicit MonetModel(const StageProblem& problem)
      : StageModel(problem),
        local_(problem.nodes.size(), problem.values.size()),
        walk_(1, problem.values.size()) {
    for (StageNode n = 0; n < problem.nodes.size(); ++n)
      for (const StageValue value : problem.nodes[n].local) local_.add(n, value);
  }

  // Nodes and values have the same numbers here: one result each.
  StageCost evaluate(std::size_t t, std::uint32_t alternative, const Between& between,
                     Words runs) override {
    find_runs(t, alternative, between, runs);
    const StageProblem::StageOf& stage = problem_.stages[t];
    const std::int64_t budget = problem_.budget;
    const bool closes = !stage.alternatives.empty();
    StageCost total;
    const ConstWords reads = closing_reads(t, alternative);
    std::int64_t all_reads = 0, kept_reads = 0;
    if (closes)
      for (const StageValue value : stage.alternatives[alternative].reads) {
        all_reads += problem_.values[value].bytes;
        if (has(between.after, value)) kept_reads += problem_.values[value].bytes;
      }
    // S_t from here on, S_t+1 before here, and what the closing operator reads and is not kept.
    // What is kept before and after changes nothing on the way.
    std::int64_t there = between.before_bytes;
    const Words walk = walk_.row(0);
    for (std::size_t w = 0; w < walk.size(); ++w)
      walk[w] = (between.before[w] ^ between.after[w]) | (reads[w] & ~between.after[w]) | runs[w];
    bool in_place = false;  // of the node before
    std::size_t passed = 0;
    for_each_bit(walk, [&](std::size_t id) {
      passed = id + 1;
      const std::int64_t bytes = problem_.values[id].bytes;
      total.peak = std::max(total.peak, stage.fixed + there);
      const bool stays = has(between.after, id) || has(reads, id);
      if (has(between.before, id)) there -= bytes;
      if (has(runs, id)) {
        const auto node = static_cast<StageNode>(id);
        const StageProblem::NodeOf& one = problem_.nodes[id];
        const std::int64_t base = stage.fixed + there + standing(node, between.after);
        if (one.with_previous) {
          take(node, t,
               in_place ? alternatives(node, t > 0).in_place : alternatives(node, t > 0).plain,
               base, total);
        } else {
          // mutant: kept-over-d
          const bool may = one.over && !has(between.after, *one.over) && !has(reads, *one.over);
          const bool joint = id + 1 < problem_.nodes.size() &&
                             problem_.nodes[id + 1].with_previous && has(runs, id + 1);
          if (!may) {
            in_place = false;
            take(node, t, alternatives(node, t > 0).plain, base, total);
          } else if (!joint) {
            take(node, t, alternatives(node, t > 0).any, base, total);
          } else {
            // The next one counts what this one leaves.
            const std::int64_t next_ahead =
                has(between.before, id + 1) ? problem_.values[id + 1].bytes : 0;
            const std::int64_t next_base = stage.fixed + there - next_ahead + (stays ? bytes : 0) +
                                           standing(node + 1, between.after);
            in_place = chooses_in_place(node, t > 0, budget - base, budget - next_base, total);
            take(node, t,
                 in_place ? alternatives(node, t > 0).in_place : alternatives(node, t > 0).plain,
                 base, total);
          }
        }
      }
      if (stays) there += bytes;
    });
    // mutant: kept-behind
    if (passed < problem_.values.size())  // at the nodes behind the walk
      total.peak = std::max(total.peak, stage.fixed + there);
    if (!closes) return total;
    const std::int64_t base = stage.closing + all_reads + between.after_bytes - kept_reads;
    const StageAlternative& closing = pick_closing(t, alternative, budget - base, total);
    total.cost += closing.cost;
    total.peak = std::max(total.peak, base + closing.workspace);
    return total;
  }

 private:
  // Its result and what stands beside it, but for what is counted as kept already.
  [[nodiscard]] std::int64_t standing(StageNode node, ConstWords after) const {
    // mutant: kept-local
    std::int64_t bytes = problem_.nodes[node].local_bytes + problem_.values[node].bytes;
    const ConstWords local = local_.row(node);
    for (std::size_t w = 0; w < local.size(); ++w)
      for (std::uint64_t left = local[w] & after[w]; left != 0; left &= left - 1)
        bytes -= problem_.values[w * 64 + static_cast<std::size_t>(std::countr_zero(left))].bytes;
    return bytes;
  }

  void take(StageNode node, std::size_t t, const std::vector<StageAlternative>& alternatives,
            std::int64_t base, StageCost& total) const {
    const StageAlternative& alternative = pick(alternatives, problem_.budget - base, total);
    total.cost += t > 0 && problem_.nodes[node].only_once ? StageProblem::kNever : alternative.cost;
    total.peak = std::max(total.peak, base + alternative.workspace);
  }

  // Of a node and its further result, which go the same way. Both ways are looked at, so a change
  // of memory may change the choice wherever it changes whether one of them fits.
  [[nodiscard]] bool chooses_in_place(StageNode node, bool again, std::int64_t slack,
                                      std::int64_t next_slack, StageCost& total) const {
    StageCost plain, in_place;
    const NodeAlternatives& one = alternatives(node, again);
    const NodeAlternatives& next = alternatives(node + 1, again);
    const auto try_way = [&](const std::vector<StageAlternative>& mine,
                             const std::vector<StageAlternative>& its, StageCost& cost) {
      const StageAlternative& a = pick(mine, slack, cost);
      const StageAlternative& b = pick(its, next_slack, cost);
      cost.cost = a.cost + b.cost;
      return a.workspace <= slack && b.workspace <= next_slack;
    };
    const bool plain_fits = try_way(one.plain, next.plain, plain);
    const bool in_place_fits = try_way(one.in_place, next.in_place, in_place);
    for (const StageCost* cost : {&plain, &in_place}) {
      total.more = std::min(total.more, cost->more);
      total.less = std::min(total.less, cost->less);
    }
    if (plain_fits != in_place_fits) return in_place_fits;
    return in_place_fits ? in_place.cost < plain.cost : true;
  }

  BitTable local_, walk_;
};

}  // namespace

std::unique_ptr<StageModel> make_monet_model(const StageProblem& problem) {
  return std::make_unique<MonetModel>(problem);
}

}  // namespace berth::schedule
