#include "csrc/schedule/recomputation/search.h"

#include <algorithm>
#include <cmath>

namespace berth::schedule {

void squeeze(WorkingPlan& plan, const StageModel& model, const Squeeze& how,
             const std::vector<StageValue>& held, std::mt19937_64& random,
             RecomputationSearch& search, FoundRecomputation& best) {
  MoveMaker maker(model, plan, random, held);
  squeeze(plan, how, maker, random, search, best);
}

void squeeze(WorkingPlan& plan, const Squeeze& how, MoveSource& source, std::mt19937_64& random,
             RecomputationSearch& search, FoundRecomputation& best) {
  constexpr std::uint64_t kPriceEvery = 128;
  const auto take = [&] {
    // mutant: kept-again
    if (plan.excess() != 0 || plan.cost() >= StageProblem::kNever ||
        (best.plan && plan.cost() >= best.cost))
      return;
    best.plan = plan.plan();
    best.cost = plan.cost();
  };
  RecomputationMove move;
  double price = how.price, temperature = how.temperature;
  const double rounds =
      static_cast<double>(std::max<std::uint64_t>(how.moves, 1)) / static_cast<double>(kPriceEvery);
  const double rise = std::pow(how.most_price / how.least_price, 1 / rounds);
  const double cooling = std::pow(0.01, 1 / rounds);
  take();
  for (std::uint64_t k = 0; k < how.moves; ++k) {
    if (k % kPriceEvery == 0) {
      if (k % (4 * kPriceEvery) == 0 && search.stop()) return;
      if (k != 0) {
        price = std::clamp(plan.excess() > 0 ? price * rise : price / rise, how.least_price,
                           how.most_price);
        temperature *= cooling;
      }
    }
    ++search.moves;
    source.make(move);
    if (move.empty() || !plan.apply(move)) continue;
    const double change = static_cast<double>(plan.changed_cost()) +
                          price * static_cast<double>(plan.changed_excess());
    if (change > 0) {
      const double draw = static_cast<double>(random() >> 11) * 0x1p-53;
      if (draw >= std::exp(-change / temperature)) {
        plan.undo();
        continue;
      }
    }
    plan.accept();
    source.accepted();
    take();
  }
}

}  // namespace berth::schedule
