#pragma once

#include "csrc/schedule/recomputation/model.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace berth::schedule {

// A value kept, or not, when each of these stages begins.
struct RowFlip {
  StageValue value = 0;
  std::uint32_t first = 0, last = 0;  // rows, both included
  bool keep = false;
};

// What changes at once: flips of different values.
struct RecomputationMove {
  std::vector<RowFlip> flips;
  std::optional<std::uint32_t> stage;  // whose alternative becomes `alternative`
  std::uint8_t alternative = 0;

  void clear() {
    flips.clear();
    stage.reset();
  }
  [[nodiscard]] bool empty() const noexcept { return flips.empty() && !stage; }
};

// A plan that changes move by move, priced stage by stage. Only stages next to a row that changes
// are looked at, and those in which a value merely passes by are not evaluated again: its bytes are
// added to their peak. Not thread-safe; the model outlives it.
class WorkingPlan {
 public:
  WorkingPlan(StageModel& model, const Recomputation& start);

  [[nodiscard]] const Recomputation& plan() const noexcept { return plan_; }
  [[nodiscard]] const StageCost& stage(std::size_t t) const { return stages_[t]; }
  [[nodiscard]] std::int64_t excess(std::size_t t) const { return over(stages_[t]); }
  [[nodiscard]] ConstWords runs(std::size_t t) const { return runs_.row(t); }
  [[nodiscard]] std::int64_t cost() const noexcept { return cost_; }
  [[nodiscard]] std::int64_t excess() const noexcept { return excess_; }
  // Whether stage t reads the value, for something that it runs or for its closing operator.
  [[nodiscard]] bool uses(std::size_t t, StageValue value) const {
    if (stale_[t] != 0) find_uses(t);
    return uses_.has(t, value);
  }
  [[nodiscard]] bool closes_with(std::size_t t, StageValue value) const {
    return has(model_.closing_reads(t, plan_.alternatives[t]), value);
  }

  // Does a move; false, and nothing is done, where it changes nothing. changed_cost() and
  // changed_excess() say by how much; then undo() or accept(). Rows 0 and the last and values
  // that cannot be kept are left as they are. O(stages touched) evaluations.
  [[nodiscard]] bool apply(const RecomputationMove& move);
  [[nodiscard]] std::int64_t changed_cost() const noexcept { return changed_cost_; }
  [[nodiscard]] std::int64_t changed_excess() const noexcept { return changed_excess_; }
  void undo();
  void accept();
  // Back to another plan. O(stages) evaluations.
  void assign(const Recomputation& plan);

  // Evaluations that were made, and those that were spared.
  [[nodiscard]] std::uint64_t evaluations() const noexcept { return evaluations_; }

 private:
  struct Cell {
    std::uint32_t row = 0;
    StageValue value = 0;
  };
  [[nodiscard]] std::int64_t over(const StageCost& stage) const noexcept {
    return stage.peak > budget_ ? stage.peak - budget_ : 0;
  }
  void flip(std::uint32_t row, StageValue value);
  void touch(std::size_t t);
  void price(std::size_t index, const RecomputationMove& move);
  void find_uses(std::size_t t) const;
  [[nodiscard]] StageModel::Between between(std::size_t t) const {
    return {plan_.kept.row(t), plan_.kept.row(t + 1), row_bytes_[t], row_bytes_[t + 1]};
  }

  StageModel& model_;
  const StageProblem& problem_;
  const std::int64_t budget_;
  Recomputation plan_;
  std::vector<std::int64_t> row_bytes_;
  std::vector<StageCost> stages_;
  BitTable runs_;
  mutable BitTable uses_;                    // by stage: values; found when they are asked for
  mutable std::vector<std::uint8_t> stale_;  // by stage: whether they are to be found again
  std::int64_t cost_ = 0, excess_ = 0;
  // Of the move that was applied last.
  std::vector<Cell> cells_;
  std::vector<std::uint32_t> touched_, stamp_;       // stages; by stage: the call that touched it
  std::vector<std::vector<std::uint32_t>> flipped_;  // by flip and row: the call that changed it
  std::uint32_t call_ = 0;
  std::vector<StageCost> new_stages_;    // by index into touched_
  std::vector<std::uint8_t> ran_again_;  // whether new_runs_ has its runs
  BitTable new_runs_;
  std::optional<std::uint8_t> old_alternative_;
  std::uint32_t moved_stage_ = 0;
  std::int64_t changed_cost_ = 0, changed_excess_ = 0;
  std::uint64_t evaluations_ = 0;
};

}  // namespace berth::schedule
