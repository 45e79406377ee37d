#include "csrc/schedule/recomputation/saved_sets.h"

#include "csrc/schedule/recomputation/made_once.h"
#include "csrc/schedule/recomputation/search.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace berth::schedule {
namespace {

// Moves between saved sets: the difference of the rows that they keep.
class SavedSetMoves : public MoveSource {
 public:
  SavedSetMoves(const StageProblem& problem, std::vector<bool> saved, std::mt19937_64& random)
      : problem_(problem),
        random_(random),
        alternatives_(problem.stages.size(), 0),
        nothing_(problem.values.size(), false),
        saved_(std::move(saved)),
        rows_(rows_of(saved_)) {
    find_candidates();
  }

  void make(RecomputationMove& move) override {
    move.clear();
    if (candidates_.empty()) return;
    new_saved_ = saved_;
    const StageValue value = candidates_[random_() % candidates_.size()];
    change(value);
    if (random_() % 4 == 0) change(candidates_[random_() % candidates_.size()]);
    new_rows_ = rows_of(new_saved_);
    for (StageValue v = 0; v < rows_.size(); ++v) add_difference(v, move);
  }
  void accepted() override {
    saved_ = new_saved_;
    rows_ = new_rows_;
  }

  [[nodiscard]] Recomputation plan() const {
    Recomputation found(problem_);
    for (StageValue v = 0; v < rows_.size(); ++v)
      for (std::uint32_t row = rows_[v].first; row != 0 && row <= rows_[v].last; ++row)
        found.kept.add(row, v);
    return found;
  }

 private:
  [[nodiscard]] std::vector<KeptRows> rows_of(const std::vector<bool>& saved) const {
    return rows_made_once(problem_, 1, problem_.stages.size() - 1, alternatives_, saved, nothing_);
  }

  // What the backward part could want if nothing were saved.
  void find_candidates() {
    std::vector<bool> useful(problem_.values.size(), false);
    for (std::size_t t = 1; t < problem_.stages.size(); ++t)
      if (!problem_.stages[t].alternatives.empty())
        for (const StageValue v : problem_.stages[t].alternatives.front().reads) useful[v] = true;
    for (auto node = problem_.nodes.rbegin(); node != problem_.nodes.rend(); ++node)
      if (std::ranges::any_of(node->makes, [&](StageValue v) { return useful[v]; }))
        for (const StageValue v : node->reads) useful[v] = true;
    for (StageValue v = 0; v < useful.size(); ++v) {
      const StageProblem::NodeOf& maker = problem_.nodes[problem_.values[v].maker];
      if (useful[v] && problem_.values[v].keepable && !maker.only_once) candidates_.push_back(v);
    }
  }

  // Alone, or so that what its maker reads is saved in its place, or is no more.
  void change(StageValue value) {
    const bool saves = !new_saved_[value];
    new_saved_[value] = saves;
    if (random_() % 2 == 0) return;
    for (const StageValue v : problem_.nodes[problem_.values[value].maker].reads)
      if (problem_.values[v].keepable &&
          !(saves && problem_.nodes[problem_.values[v].maker].only_once))
        new_saved_[v] = !saves;
  }

  void add_difference(StageValue v, RecomputationMove& move) const {
    const KeptRows before = rows_[v], after = new_rows_[v];
    if (before == after) return;
    // Rows of the one that the other has not: in front of it and behind it.
    const auto without = [&](KeptRows one, KeptRows other, bool keep) {
      if (one.first == 0) return;
      if (other.first == 0 || other.first > one.last || other.last < one.first) {
        move.flips.push_back({v, one.first, one.last, keep});
        return;
      }
      if (one.first < other.first) move.flips.push_back({v, one.first, other.first - 1, keep});
      if (one.last > other.last) move.flips.push_back({v, other.last + 1, one.last, keep});
    };
    without(before, after, false);
    without(after, before, true);
  }

  const StageProblem& problem_;
  std::mt19937_64& random_;
  const std::vector<std::uint8_t> alternatives_;
  const std::vector<bool> nothing_;
  std::vector<StageValue> candidates_;
  std::vector<bool> saved_, new_saved_;
  std::vector<KeptRows> rows_, new_rows_;
};

}  // namespace

std::optional<Recomputation> search_saved_sets(const StageProblem& problem,
                                               const SavedSetOptions& options) {
  if (problem.stages.size() < 2 || problem.values.empty()) return std::nullopt;
  const auto model = StageModel::make(problem);
  const RecomputationCost everything = evaluate(*model, keep_everything(problem));
  FoundRecomputation best;
  if (options.start) {
    const RecomputationCost cost = evaluate(*model, *options.start);
    if (cost.excess == 0 && cost.cost < StageProblem::kNever) best = {options.start, cost.cost};
  }
  std::mt19937_64 random(options.seed);
  RecomputationSearch search;
  search.stop = options.stop;
  const double time = static_cast<double>(std::max<std::int64_t>(everything.cost, 1));
  const double price = time / static_cast<double>(std::max<std::int64_t>(problem.budget, 1)) /
                       static_cast<double>(problem.stages.size());
  constexpr std::uint64_t kParts = 3;
  for (std::uint64_t part = 0; part < kParts; ++part) {
    std::vector<bool> saved(problem.values.size(), true);
    if (part > 0 && best.plan)
      for (StageValue v = 0; v < saved.size(); ++v) saved[v] = best.plan->kept.has(1, v);
    SavedSetMoves moves(problem, std::move(saved), random);
    WorkingPlan plan(*model, moves.plan());
    const Squeeze how{.moves = options.moves / kParts,
                      .temperature = time * (part == 0 ? 1e-3 : 2e-4),
                      .price = price * (part == 0 ? 0.1 : 10),
                      .least_price = price * 0.01,
                      .most_price = price * 1000};
    squeeze(plan, how, moves, random, search, best);
  }
  return best.plan;
}

}  // namespace berth::schedule
