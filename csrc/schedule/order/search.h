#pragma once

#include "csrc/schedule/order/area.h"
#include "csrc/schedule/order/min_cut.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>

namespace berth::schedule {

// When a search ends. Moves are counted, never seconds, but for `stop`, which may look at the
// clock.
struct SearchLimits {
  std::uint64_t moves = 0;
  std::function<bool()> stop = [] { return false; };  // asked every few hundred moves
};

// Descent by cuts: a step with much alive is brought to the least that its cut says, by running the
// cut's nodes first, within a window. No random choice. Ends where no such move lowers the area.
// Returns the moves that were made.
std::uint64_t descend(MinCut& cuts, WorkingOrder& order, const SearchLimits& limits);
// One such move, by the target that the order has; false where there is none.
bool descend_once(MinCut& cuts, WorkingOrder& order, const SearchLimits& limits);

// Annealing on the area above a target that falls with what is found: nodes are pulled to or pushed
// past a step with much alive, with what must come before or after them. Returns the best order,
// whose peak is at most that of `start`. Deterministic for equal random state and limits without a
// clock.
[[nodiscard]] Order anneal(const OrderProblem& problem, MinCut& cuts, Order start, Bytes bound,
                           std::mt19937_64& random, const SearchLimits& limits,
                           std::uint64_t* moves);

// Exact search over sets of executed nodes, depth first: an order whose peak is at most `capacity`.
// Sets that lead nowhere are kept whole, no hashes alone, so a refusal is a proof. kAborted where
// `most_sets` of them are not enough, or the limits end it.
struct ExactAnswer {
  enum class Kind : std::uint8_t { kFound, kRefuted, kAborted } kind = Kind::kAborted;
  Order order;
  std::uint64_t sets = 0;
};
[[nodiscard]] ExactAnswer search_exactly(const OrderProblem& problem, Bytes capacity,
                                         std::uint64_t most_sets, const SearchLimits& limits);

}  // namespace berth::schedule
