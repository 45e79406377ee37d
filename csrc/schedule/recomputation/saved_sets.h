#pragma once

#include "csrc/schedule/recomputation/model.h"

#include <cstdint>
#include <functional>
#include <optional>

namespace berth::schedule {

// How long a search of saved sets may take, and from where.
struct SavedSetOptions {
  std::uint64_t moves = 20'000;
  std::uint64_t seed = 1;
  std::optional<Recomputation> start = {};            // what it keeps in row 1 is saved
  std::function<bool()> stop = [] { return false; };  // asked every few hundred moves
};

// The cheapest plan found, within the budget, of those in which every value is saved for the whole
// backward part or is recomputed once, where it is wanted first, and kept from there to its last
// use: a bit a value, where a plan has a bit a value and stage. So large steps come close with few
// moves, and a search of all plans has a place to begin. Annealing, as squeeze() does it: a value
// is saved no more, or is saved, alone or in exchange for what its maker reads. From everything
// saved, then from the best. Alternative 0 of each closing operator. Deterministic for a `stop`
// that looks at no clock.
[[nodiscard]] std::optional<Recomputation> search_saved_sets(const StageProblem& problem,
                                                             const SavedSetOptions& options);

}  // namespace berth::schedule
