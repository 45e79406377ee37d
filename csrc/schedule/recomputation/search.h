#pragma once

#include "csrc/schedule/recomputation/working_plan.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <random>

namespace berth::schedule {

// What a search ends with.
struct FoundRecomputation {
  std::optional<Recomputation> plan;  // within the budget
  std::int64_t cost = 0;
};

struct RecomputationSearch {
  std::function<bool()> stop = [] { return false; };  // asked every few hundred moves
  std::uint64_t moves = 0;                            // counted
};

// How a search begins and cools. Prices are in the problem's units: cost for each byte over the
// budget.
struct Squeeze {
  std::uint64_t moves = 0;
  double temperature = 0;  // it falls to a hundredth
  double price = 0;        // rises while anything is over the budget, and falls while nothing is
  double least_price = 0, most_price = 0;
};

// Where moves come from.
class MoveSource {
 public:
  virtual ~MoveSource() = default;
  virtual void make(RecomputationMove& move) = 0;  // fills one in; it may be empty
  virtual void accepted() {}                       // the last one was: it stays
};

// Annealing with the moves of a source. See below.
void squeeze(WorkingPlan& plan, const Squeeze& how, MoveSource& source, std::mt19937_64& random,
             RecomputationSearch& search, FoundRecomputation& best);

// Annealing on cost and on bytes over the budget at a price that follows: by moves that drop a
// value between two uses, keep one that is recomputed, exchange them, shift and cut intervals, take
// another alternative. Updates `best` where it finds something within the budget that costs less.
// Deterministic for equal random state and a `stop` that looks at no clock.
void squeeze(WorkingPlan& plan, const StageModel& model, const Squeeze& how,
             const std::vector<StageValue>& held, std::mt19937_64& random,
             RecomputationSearch& search, FoundRecomputation& best);

// Moves for a plan: half of them drop or keep one interval, the others exchange, shift or cut some.
class MoveMaker : public MoveSource {
 public:
  // `held`: values whose first row no move changes.
  MoveMaker(const StageModel& model, const WorkingPlan& plan, std::mt19937_64& random,
            std::vector<StageValue> held);
  void make(RecomputationMove& move) override;
  // The interval of a kept value around a row, between two uses of it.
  [[nodiscard]] RowFlip gap_around(StageValue value, std::uint32_t row) const;
  // The interval from where the value was last there to stage t.
  [[nodiscard]] RowFlip since_last(StageValue value, std::uint32_t t) const;

 private:
  [[nodiscard]] std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : random_() % n; }
  [[nodiscard]] std::uint32_t hot_stage();
  [[nodiscard]] std::optional<RowFlip> kept_gap();
  [[nodiscard]] std::optional<std::pair<StageValue, std::uint32_t>> recomputation();
  void add(RecomputationMove& move, RowFlip flip) const;
  void drop(RecomputationMove& move);
  void keep(RecomputationMove& move);
  void exchange(RecomputationMove& move);
  void neighbour(RecomputationMove& move);
  void sub_range(RecomputationMove& move);
  void alternative(RecomputationMove& move);
  void earlier(RecomputationMove& move);

  const StageModel& model_;
  const StageProblem& problem_;
  const WorkingPlan& plan_;
  std::mt19937_64& random_;
  std::vector<StageValue> held_;
  std::uint32_t stages_;
  std::vector<std::uint32_t> choosing_;              // stages with more than one alternative
  std::vector<std::vector<StageValue>> neighbours_;  // by value: inputs and results of readers
};

}  // namespace berth::schedule
