#include "csrc/papers/monet_form.h"

#include <algorithm>

namespace berth::schedule {
namespace {

void sort_unique(std::vector<StageValue>& list) {
  std::ranges::sort(list);
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

class Builder {
 public:
  explicit Builder(const StageProblem& exact) : exact_(exact), number_(exact.values.size()) {
    form_.problem.rules = StageRules::kMonet;
    form_.problem.budget = exact.budget;
    form_.problem.unit_bytes = exact.unit_bytes;
    form_.problem.unit_ns = exact.unit_ns;
  }

  MonetForm build() {
    std::vector<StageNode> first(exact_.nodes.size());  // its number here
    for (StageNode n = 0; n < exact_.nodes.size(); ++n) {
      first[n] = static_cast<StageNode>(form_.problem.nodes.size());
      add(exact_.nodes[n]);
    }
    find_local_sets();
    form_.problem.stages = exact_.stages;
    for (StageProblem::StageOf& stage : form_.problem.stages) {
      std::vector<StageNode> due;
      for (const StageNode n : stage.must_run) {
        due.push_back(first[n]);
        if (first[n] + 1 < form_.problem.nodes.size() &&
            form_.problem.nodes[first[n] + 1].with_previous)
          due.push_back(first[n] + 1);
      }
      stage.must_run = std::move(due);
      for (StageProblem::AlternativesOf& one : stage.alternatives) one.reads = mapped(one.reads);
    }
    // By MONeT's rules what a stage reads is kept behind it: the last one needs a row for that.
    form_.problem.stages.emplace_back();
    return std::move(form_);
  }

 private:
  [[nodiscard]] std::vector<StageValue> mapped(const std::vector<StageValue>& values) const {
    std::vector<StageValue> found;
    for (const StageValue v : values) found.push_back(number_[v]);
    sort_unique(found);
    return found;
  }

  void add(const StageProblem::NodeOf& from) {
    std::vector<StageValue> lasting, overwritten;
    for (const StageValue v : from.makes)
      (exact_.values[v].keepable ? lasting : overwritten).push_back(v);
    StageProblem::NodeOf node = from;
    node.reads = mapped(from.reads);
    if (from.over) node.over = number_[*from.over];
    const bool both = !lasting.empty() && !overwritten.empty();
    put(node, both || lasting.empty() ? overwritten : lasting);
    if (!both) return;
    StageProblem::NodeOf further;
    further.with_previous = true;
    further.only_once = from.only_once;
    further.last_stage = from.last_stage;
    further.reads = node.reads;
    further.first = {{0, 0, 0}};
    if (from.over) {
      further.over = node.over;
      further.in_place = {{0, 0, 0}};
    }
    put(further, lasting);
  }

  void put(StageProblem::NodeOf node, const std::vector<StageValue>& results) {
    const auto number = static_cast<StageValue>(form_.problem.nodes.size());
    StageProblem::ValueOf value{0, number, !results.empty()};
    for (const StageValue v : results) {
      value.bytes += exact_.values[v].bytes;
      value.keepable = value.keepable && exact_.values[v].keepable;
      number_[v] = number;
    }
    node.makes = {number};
    form_.problem.nodes.push_back(std::move(node));
    form_.problem.values.push_back(value);
    form_.members.push_back(results);
  }

  // Beside an operator stands what it and later ones read and was made before it.
  void find_local_sets() {
    std::vector<StageProblem::NodeOf>& nodes = form_.problem.nodes;
    std::vector<StageNode> last(nodes.size(), 0);  // reader, by value
    for (StageNode n = 0; n < nodes.size(); ++n)
      for (const StageValue v : nodes[n].reads) last[v] = n;
    for (StageNode n = 0; n < nodes.size(); ++n)
      for (StageValue v = 0; v < n; ++v) {
        if (last[v] < n) continue;
        nodes[n].local.push_back(v);
        nodes[n].local_bytes += form_.problem.values[v].bytes;
      }
  }

  const StageProblem& exact_;
  std::vector<StageValue> number_;  // of each value of the exact form
  MonetForm form_;
};

}  // namespace

MonetForm monet_form(const StageProblem& exact) { return Builder(exact).build(); }

Recomputation exact_plan(const StageProblem& exact, const MonetForm& form,
                         const Recomputation& plan) {
  const std::size_t stages = exact.stages.size(), values = form.problem.values.size();
  // Which stage uses what: rules of MONeT say what is recomputed.
  const auto model = StageModel::make(form.problem);
  BitTable runs(1, form.problem.nodes.size()), used(stages, values);
  for (std::size_t t = 0; t < stages; ++t) {
    (void)model->evaluate(t, plan.alternatives[t], {plan.kept.row(t), plan.kept.row(t + 1), 0, 0},
                          runs.row(0));
    for_each_bit(runs.row(0), [&](std::size_t node) {
      for (const StageValue v : form.problem.nodes[node].reads) used.add(t, v);
    });
    if (exact.stages[t].alternatives.empty()) continue;
    for (const StageValue v : form.problem.stages[t].alternatives[plan.alternatives[t]].reads)
      used.add(t, v);
  }
  Recomputation found(exact);
  std::copy_n(plan.alternatives.begin(), stages, found.alternatives.begin());
  for (StageValue v = 0; v < values; ++v) {
    bool wanted = false;  // by a stage that it is kept for
    for (std::size_t row = stages; row-- > 1;) {
      wanted = plan.kept.has(row, v) && (wanted || used.has(row, v));
      if (!wanted) continue;
      for (const StageValue member : form.members[v]) found.kept.add(row, member);
    }
  }
  return found;
}

}  // namespace berth::schedule
