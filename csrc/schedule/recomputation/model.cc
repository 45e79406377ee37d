#include "csrc/schedule/recomputation/model.h"

#include "csrc/core/check.h"
#include "csrc/schedule/recomputation/rules.h"

#include <algorithm>

namespace berth::schedule {
namespace {

std::vector<StageAlternative> pareto(std::vector<StageAlternative> alternatives) {
  std::sort(alternatives.begin(), alternatives.end(),
            [](const StageAlternative& a, const StageAlternative& b) {
              return a.cost != b.cost ? a.cost < b.cost : a.workspace < b.workspace;
            });
  std::vector<StageAlternative> kept;
  for (const StageAlternative& alternative : alternatives)
    if (kept.empty() || alternative.workspace < kept.back().workspace) kept.push_back(alternative);
  return kept;
}

// By stage: how many alternatives are before it, one where it has none.
std::vector<std::size_t> alternatives_before(const StageProblem& problem) {
  std::vector<std::size_t> before = {0};
  for (const StageProblem::StageOf& stage : problem.stages)
    before.push_back(before.back() + std::max<std::size_t>(stage.alternatives.size(), 1));
  return before;
}

}  // namespace

std::unique_ptr<StageModel> StageModel::make(const StageProblem& problem) {
  const std::string wrong = problem.violation();
  BERTH_CHECK(wrong.empty(), kInput, "{}", wrong);
  switch (problem.rules) {
    case StageRules::kMonet:
      return make_monet_model(problem);
    case StageRules::kCheckmate:
      return make_checkmate_model(problem);
    case StageRules::kExact:
      break;
  }
  return make_exact_model(problem);
}

StageModel::StageModel(const StageProblem& problem)
    : problem_(problem),
      touched_(problem.nodes.size(), problem.values.size()),
      first_closing_(alternatives_before(problem)),
      closing_reads_(first_closing_.back(), problem.values.size()) {
  for (StageNode n = 0; n < problem.nodes.size(); ++n) {
    const StageProblem::NodeOf& node = problem.nodes[n];
    for (const auto* values : {&node.makes, &node.reads, &node.local})
      for (const StageValue v : *values) touched_.add(n, v);
    if (node.over) touched_.add(n, *node.over);
    const auto add = [&](std::vector<NodeAlternatives>& list,
                         const std::vector<StageAlternative>& plain) {
      std::vector<StageAlternative> any = plain;
      any.insert(any.end(), node.in_place.begin(), node.in_place.end());
      list.push_back({pareto(node.always_in_place ? node.in_place : plain), pareto(any),
                      pareto(node.in_place)});
    };
    add(first_, node.first);
    add(again_, node.again.empty() ? node.first : node.again);
  }
  first_due_.assign(problem.nodes.size(), 0);
  for (std::size_t t = problem.stages.size(); t-- > 0;)
    for (const StageNode node : problem.stages[t].must_run)
      first_due_[node] = static_cast<std::uint32_t>(t);
  for (std::size_t t = 0; t < problem.stages.size(); ++t) {
    closing_.emplace_back();
    std::size_t row = first_closing_[t];
    for (const auto& one : problem.stages[t].alternatives) {
      closing_.back().push_back(pareto(one.all));
      for (const StageValue v : one.reads) closing_reads_.add(row, v);
      ++row;
    }
  }
}

bool StageModel::is_due(std::size_t t, std::size_t node) const {
  if (t == 0) return first_due_[node] == 0;
  const std::vector<StageNode>& due = problem_.stages[t].must_run;
  return std::binary_search(due.begin(), due.end(), node);
}

const StageAlternative& StageModel::pick(const std::vector<StageAlternative>& alternatives,
                                         std::int64_t slack, StageCost& stage) noexcept {
  std::size_t k = 0;
  while (k < alternatives.size() && alternatives[k].workspace > slack) ++k;
  if (k > 0) stage.less = std::min(stage.less, alternatives[k - 1].workspace - slack);
  if (k == alternatives.size()) return alternatives.back();
  stage.more = std::min(stage.more, slack - alternatives[k].workspace);
  return alternatives[k];
}

void StageModel::find_runs(std::size_t t, std::uint32_t alternative, const Between& between,
                           Words runs) const {
  const StageProblem::StageOf& stage = problem_.stages[t];
  std::fill(runs.begin(), runs.end(), 0);
  const auto need = [&](StageValue value) {
    const StageNode node = problem_.values[value].maker;
    runs[node / 64] |= std::uint64_t{1} << (node % 64);
  };
  for (const StageNode node : stage.must_run) runs[node / 64] |= std::uint64_t{1} << (node % 64);
  if (!stage.alternatives.empty())
    for (const StageValue value : stage.alternatives[alternative].reads)
      // mutant: kept-need
      if (!has(between.after, value) && (needs_after() || !has(between.before, value))) need(value);
  for (std::size_t w = 0; w < between.after.size(); ++w)
    for (std::uint64_t left = between.after[w] & ~between.before[w]; left != 0; left &= left - 1)
      need(static_cast<StageValue>(w * 64 + static_cast<std::size_t>(std::countr_zero(left))));
  for (std::size_t w = runs.size(); w-- > 0;) {
    for (std::uint64_t left = runs[w]; left != 0;) {
      const auto bit = 63 - static_cast<std::size_t>(std::countl_zero(left));
      const StageProblem::NodeOf& node = problem_.nodes[w * 64 + bit];
      if (node.with_previous) {
        const std::size_t previous = w * 64 + bit - 1;
        runs[previous / 64] |= std::uint64_t{1} << (previous % 64);
      }
      for (const StageValue value : node.reads)
        if (!has(between.before, value)) need(value);
      left = runs[w] & ((std::uint64_t{1} << bit) - 1);
    }
  }
}

RecomputationCost evaluate(StageModel& model, const Recomputation& plan) {
  const StageProblem& problem = model.problem();
  RecomputationCost total;
  BitTable runs(1, problem.nodes.size());
  const auto bytes_of = [&](ConstWords row) {
    std::int64_t bytes = 0;
    for_each_bit(row, [&](std::size_t value) { bytes += problem.values[value].bytes; });
    return bytes;
  };
  std::int64_t before = bytes_of(plan.kept.row(0));
  for (std::size_t t = 0; t < problem.stages.size(); ++t) {
    const std::int64_t after = bytes_of(plan.kept.row(t + 1));
    const StageCost stage =
        model.evaluate(t, plan.alternatives[t],
                       {plan.kept.row(t), plan.kept.row(t + 1), before, after}, runs.row(0));
    total.cost += stage.cost;
    total.peak = std::max(total.peak, stage.peak);
    total.excess += std::max<std::int64_t>(0, stage.peak - problem.budget);
    before = after;
  }
  return total;
}

Recomputation keep_everything(const StageProblem& problem) {
  Recomputation plan(problem);
  const bool after = problem.rules == StageRules::kMonet;
  const std::size_t stages = problem.stages.size();
  // The stage that makes each value, and the last row that is of use.
  std::vector<std::size_t> made(problem.values.size(), 0), last(problem.values.size(), 0);
  for (std::size_t t = 0; t < stages; ++t) {
    for (const StageNode node : problem.stages[t].must_run) {
      for (const StageValue value : problem.nodes[node].makes) made[value] = t;
      for (const StageValue value : problem.nodes[node].reads) last[value] = t;
    }
    if (!problem.stages[t].alternatives.empty())
      for (const StageValue value : problem.stages[t].alternatives[0].reads)
        last[value] = after ? t + 1 : t;
  }
  for (StageValue value = 0; value < problem.values.size(); ++value) {
    if (!problem.values[value].keepable) continue;
    for (std::size_t row = made[value] + 1; row <= std::min(last[value], stages - 1); ++row)
      plan.kept.add(row, value);
  }
  return plan;
}

}  // namespace berth::schedule
