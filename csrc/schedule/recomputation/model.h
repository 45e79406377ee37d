#pragma once

#include "csrc/schedule/recomputation/bit_table.h"
#include "csrc/schedule/recomputation/problem.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace berth::schedule {

// Which values are there when each stage begins, and which alternative its closing operator takes.
struct Recomputation {
  BitTable kept;                           // a row a stage, and one more that stays empty
  std::vector<std::uint8_t> alternatives;  // by stage

  explicit Recomputation(const StageProblem& problem)
      : kept(problem.stages.size() + 1, problem.values.size()),
        alternatives(problem.stages.size(), 0) {}
  friend bool operator==(const Recomputation&, const Recomputation&) = default;
};

// What a stage comes to.
struct StageCost {
  static constexpr std::int64_t kNoMargin = std::numeric_limits<std::int64_t>::max() / 2;
  std::int64_t cost = 0;
  std::int64_t peak = 0;
  // How many bytes more and less (that less excluded) leave each choice of an alternative as it is.
  std::int64_t more = kNoMargin, less = kNoMargin;
};

// Told what a stage runs, in order: for who makes steps of a plan.
class StageObserver {
 public:
  virtual ~StageObserver() = default;
  virtual void runs(StageNode node, const StageAlternative& alternative, bool in_place) = 0;
  virtual void closes(const StageAlternative& alternative) = 0;
};

// A plan's stages, priced one by one. A stage depends on what is kept before and after it and on
// its alternative, on nothing else. One per thread; the problem outlives it.
class StageModel {
 public:
  // By the problem's rules, which violation() found nothing wrong with.
  [[nodiscard]] static std::unique_ptr<StageModel> make(const StageProblem& problem);
  virtual ~StageModel() = default;

  // What stage t comes to between rows of kept values with these bytes; `runs` becomes the set of
  // nodes that it runs. O(values + nodes that run and their reads).
  struct Between {
    ConstWords before, after;
    std::int64_t before_bytes = 0, after_bytes = 0;
  };
  [[nodiscard]] virtual StageCost evaluate(std::size_t t, std::uint32_t alternative,
                                           const Between& between, Words runs) = 0;

  // Tells it of all evaluations from now on; of kExact alone. Null: nobody.
  void observe(StageObserver* observer) noexcept { observer_ = observer; }

  [[nodiscard]] const StageProblem& problem() const noexcept { return problem_; }
  // Values that a node makes, reads or stands beside, and those that a closing operator reads. Any
  // other value that is kept before and after a stage adds its bytes to the stage's peak, and that
  // is all.
  [[nodiscard]] ConstWords touched_by(StageNode node) const { return touched_.row(node); }
  [[nodiscard]] ConstWords closing_reads(std::size_t t, std::uint32_t alternative) const {
    return closing_reads_.row(first_closing_[t] + alternative);
  }
  // Whether what a closing operator reads is kept for it by the row behind its stage (MONeT), or by
  // that in front.
  [[nodiscard]] bool needs_after() const noexcept { return problem_.rules == StageRules::kMonet; }

 protected:
  explicit StageModel(const StageProblem& problem);

  // Alternatives from which none is both faster and smaller than another: by rising cost.
  struct NodeAlternatives {
    std::vector<StageAlternative> plain, any;  // `any`: with those in place
    std::vector<StageAlternative> in_place;
  };
  [[nodiscard]] const NodeAlternatives& alternatives(StageNode node, bool again) const {
    return again ? again_[node] : first_[node];
  }
  // The fastest that fits the slack; the smallest where none does. Keeps the margins.
  [[nodiscard]] static const StageAlternative& pick(
      const std::vector<StageAlternative>& alternatives, std::int64_t slack,
      StageCost& stage) noexcept;
  [[nodiscard]] const StageAlternative& pick_closing(std::size_t t, std::uint32_t alternative,
                                                     std::int64_t slack,
                                                     StageCost& stage) const noexcept {
    return pick(closing_[t][alternative], slack, stage);
  }
  // Whether a run of the node in stage t is its first, or one that it must have anyway; and whether
  // it may run: not before it first must, nor again where it must not.
  [[nodiscard]] bool is_due(std::size_t t, std::size_t node) const;
  [[nodiscard]] bool may_run(std::size_t t, std::size_t node, bool due) const noexcept {
    const StageProblem::NodeOf& one = problem_.nodes[node];
    return due || (!one.only_once && t <= one.last_stage && t >= first_due_[node]);
  }
  // The least set of nodes that makes what must be there.
  void find_runs(std::size_t t, std::uint32_t alternative, const Between& between,
                 Words runs) const;

  const StageProblem& problem_;
  StageObserver* observer_ = nullptr;

 private:
  BitTable touched_;
  std::vector<std::size_t> first_closing_;  // by stage: its row of closing_reads_, empty ones, too
  BitTable closing_reads_;
  std::vector<NodeAlternatives> first_, again_;
  std::vector<std::uint32_t> first_due_;  // by node: the first stage that must run it, or 0
  std::vector<std::vector<std::vector<StageAlternative>>> closing_;
};

// A whole plan, priced. O(stages) evaluations.
struct RecomputationCost {
  std::int64_t cost = 0;
  std::int64_t peak = 0;
  std::int64_t excess = 0;  // over the budget, summed over the stages
};
[[nodiscard]] RecomputationCost evaluate(StageModel& model, const Recomputation& plan);

// Everything that is read later is kept until its last use: the most memory, nothing recomputed.
[[nodiscard]] Recomputation keep_everything(const StageProblem& problem);

}  // namespace berth::schedule
