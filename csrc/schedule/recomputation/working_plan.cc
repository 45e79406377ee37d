#include "csrc/schedule/recomputation/working_plan.h"

#include <algorithm>

namespace berth::schedule {

WorkingPlan::WorkingPlan(StageModel& model, const Recomputation& start)
    : model_(model),
      problem_(model.problem()),
      budget_(problem_.budget),
      plan_(start),
      row_bytes_(problem_.stages.size() + 1, 0),
      stages_(problem_.stages.size()),
      runs_(problem_.stages.size(), problem_.nodes.size()),
      uses_(problem_.stages.size(), problem_.values.size()),
      stale_(problem_.stages.size(), 1),
      stamp_(problem_.stages.size(), 0),
      new_stages_(problem_.stages.size()),
      ran_again_(problem_.stages.size(), 0),
      new_runs_(problem_.stages.size(), problem_.nodes.size()) {
  assign(start);
}

void WorkingPlan::assign(const Recomputation& plan) {
  plan_ = plan;
  cells_.clear();
  touched_.clear();
  old_alternative_.reset();
  for (std::size_t row = 0; row < row_bytes_.size(); ++row) {
    row_bytes_[row] = 0;
    for_each_bit(plan_.kept.row(row),
                 [&](std::size_t value) { row_bytes_[row] += problem_.values[value].bytes; });
  }
  cost_ = excess_ = 0;
  for (std::size_t t = 0; t < stages_.size(); ++t) {
    stages_[t] = model_.evaluate(t, plan_.alternatives[t], between(t), runs_.row(t));
    cost_ += stages_[t].cost;
    excess_ += over(stages_[t]);
    stale_[t] = 1;
  }
}

void WorkingPlan::find_uses(std::size_t t) const {
  const Words uses = uses_.row(t);
  const ConstWords closing = model_.closing_reads(t, plan_.alternatives[t]);
  std::copy(closing.begin(), closing.end(), uses.begin());
  for_each_bit(runs_.row(t), [&](std::size_t node) {
    const ConstWords touched = model_.touched_by(static_cast<StageNode>(node));
    for (std::size_t w = 0; w < uses.size(); ++w) uses[w] |= touched[w];
  });
  stale_[t] = 0;
}

void WorkingPlan::flip(std::uint32_t row, StageValue value) {
  const std::int64_t bytes = problem_.values[value].bytes;
  row_bytes_[row] += plan_.kept.has(row, value) ? -bytes : bytes;
  plan_.kept.flip(row, value);
}

void WorkingPlan::touch(std::size_t t) {
  if (stamp_[t] == call_) return;
  stamp_[t] = call_;
  touched_.push_back(static_cast<std::uint32_t>(t));
}

bool WorkingPlan::apply(const RecomputationMove& move) {
  cells_.clear();
  touched_.clear();
  old_alternative_.reset();
  ++call_;
  const auto rows = static_cast<std::uint32_t>(stages_.size());
  while (flipped_.size() < move.flips.size()) flipped_.emplace_back(rows + 1, 0);
  for (std::size_t k = 0; k < move.flips.size(); ++k) {
    const RowFlip& one = move.flips[k];
    if (!problem_.values[one.value].keepable) continue;
    const std::uint32_t last = std::min(one.last, rows - 1);
    for (std::uint32_t row = std::max(one.first, 1U); row <= last; ++row) {
      if (plan_.kept.has(row, one.value) == one.keep) continue;
      flip(row, one.value);
      cells_.push_back({row, one.value});
      flipped_[k][row] = call_;
      touch(row - 1);
      touch(row);
    }
  }
  if (move.stage && plan_.alternatives[*move.stage] != move.alternative) {
    moved_stage_ = *move.stage;
    old_alternative_ = plan_.alternatives[moved_stage_];
    plan_.alternatives[moved_stage_] = move.alternative;
    touch(moved_stage_);
  }
  changed_cost_ = changed_excess_ = 0;
  if (touched_.empty()) return false;
  for (std::size_t k = 0; k < touched_.size(); ++k) price(k, move);
  return true;
}

// A value that was flipped both before and after the stage, and that nothing in it touches, only
// shifts its peak: as far as no choice of an alternative depends on it.
void WorkingPlan::price(std::size_t index, const RecomputationMove& move) {
  const std::uint32_t t = touched_[index];
  const StageCost& old = stages_[t];
  StageCost& now = new_stages_[index];
  const auto passes = [&] {
    if (old_alternative_ && moved_stage_ == t) return false;
    std::int64_t shift = 0;
    for (std::size_t k = 0; k < move.flips.size(); ++k) {
      const RowFlip& one = move.flips[k];
      const bool changed_before = flipped_[k][t] == call_,
                 changed_after = flipped_[k][t + 1] == call_;
      if (!changed_before && !changed_after) continue;
      const bool before = plan_.kept.has(t, one.value);
      if (!changed_before || !changed_after || before != plan_.kept.has(t + 1, one.value))
        return false;
      // mutant: kept-passes
      if (uses(t, one.value)) return false;
      shift += before ? problem_.values[one.value].bytes : -problem_.values[one.value].bytes;
    }
    // mutant: kept-margin, kept-margin-last
    if (shift > old.more || -shift >= old.less) return false;
    now = old;
    now.peak += shift;
    if (now.more != StageCost::kNoMargin) now.more -= shift;
    if (now.less != StageCost::kNoMargin) now.less += shift;
    return true;
  };
  ran_again_[index] = 0;
  if (!passes()) {
    now = model_.evaluate(t, plan_.alternatives[t], between(t), new_runs_.row(index));
    ran_again_[index] = 1;
    ++evaluations_;
  }
  changed_cost_ += now.cost - old.cost;
  changed_excess_ += over(now) - over(old);
}

void WorkingPlan::undo() {
  for (const Cell& cell : cells_) flip(cell.row, cell.value);
  if (old_alternative_) plan_.alternatives[moved_stage_] = *old_alternative_;
  cells_.clear();
  touched_.clear();
  old_alternative_.reset();
}

void WorkingPlan::accept() {
  for (std::size_t k = 0; k < touched_.size(); ++k) {
    stages_[touched_[k]] = new_stages_[k];
    if (ran_again_[k] == 0) continue;
    const ConstWords from = new_runs_.row(k);
    std::copy(from.begin(), from.end(), runs_.row(touched_[k]).begin());
    stale_[touched_[k]] = 1;
  }
  cost_ += changed_cost_;
  excess_ += changed_excess_;
  cells_.clear();
  touched_.clear();
  old_alternative_.reset();
}

}  // namespace berth::schedule
