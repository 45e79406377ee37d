#pragma once

#include "csrc/schedule/offload/timeline.h"
#include "csrc/schedule/offload/triggers.h"

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace berth::schedule::offload {

// The ways out of the device that a search may use.
struct Ways {
  bool offload = true, recompute = true;
};

// A plan in the making: fates, and reloads by how much earlier than Triggers says they begin.
struct Draft {
  std::vector<Fate> fate;
  std::vector<std::int32_t> lead;
};

// What a draft is worth: what is above the budget first, then the time.
struct Score {
  Bytes excess = 0;       // the most that an operator is above the budget
  double excess_sum = 0;  // bytes, over all operators that run
  std::uint64_t ns = ~std::uint64_t{0};
  [[nodiscard]] bool fits() const noexcept { return excess == 0; }
  [[nodiscard]] bool better_than(const Score& other) const noexcept {
    if (fits() != other.fits()) return fits();
    if (!fits() && excess_sum != other.excess_sum) return excess_sum < other.excess_sum;
    return ns < other.ns;
  }
};

// When a search ends. Simulations are counted, never seconds, but for `stop`, which may look at the
// clock.
struct SearchLimits {
  std::uint64_t simulations = 0;
  std::function<bool()> stop = [] { return false; };  // asked before each simulation
};

// Searches for fates. Every draft is priced by playing it whole.
class Search {
 public:
  // Values below `least_bytes` are not copied, nor are those whose gap is shorter than 1.1 times
  // both copies.
  Search(const Problem& problem, const Machine& machine, Bytes least_bytes);

  // What may be done with a value.
  [[nodiscard]] bool allows(Value value, Fate fate, const Ways& ways) const;
  [[nodiscard]] Draft all_kept() const;
  // As little kept as the ways allow: recomputed where that is possible.
  [[nodiscard]] Draft least_kept(const Ways& ways) const;
  [[nodiscard]] OffloadPlan plan_of(const Draft& draft);
  Score price(const Draft& draft);
  [[nodiscard]] std::uint64_t simulations() const noexcept { return simulations_; }

  // Takes values out of the device until the draft fits, each time those with the least added time
  // for the excess that they remove: over all operators, or at the worst one (`by_sum`). Up to 128
  // values all are tried each time; of more, those that promise most. Returns its score.
  Score greedy(Draft& draft, const Ways& ways, bool by_sum, const SearchLimits& limits);
  // Keeps again what need not leave, until no single one is left.
  Score undo(Draft& draft, const SearchLimits& limits);
  // Annealing: fates of one value or of two, and leads. Gives back the best, which is at least as
  // good as `draft`; `better` is called with each that is better than all before.
  Score anneal(Draft& draft, const Ways& ways, std::mt19937_64& random, const SearchLimits& limits,
               const std::function<void(const Draft&, const Score&)>& better);

 private:
  struct Candidate {
    Value value = 0;
    Fate fate = Fate::kKeep;
    double rank = 0;  // the less, the better
  };
  [[nodiscard]] bool ended(const SearchLimits& limits, std::uint64_t since) const {
    return simulations_ - since >= limits.simulations || limits.stop();
  }
  [[nodiscard]] std::vector<Candidate> promising(const Draft& draft, const Ways& ways) const;
  bool change(Draft& draft, const Ways& ways, std::mt19937_64& random) const;

  const Problem& problem_;
  const Machine& machine_;
  Triggers triggers_;
  Timeline timeline_;
  OffloadPlan plan_;
  std::vector<Value> movable_;  // those with a choice
  std::vector<bool> may_offload_, may_recompute_;
  std::uint64_t base_ns_ = 0;  // all operators once
  std::uint64_t simulations_ = 0;
};

}  // namespace berth::schedule::offload
