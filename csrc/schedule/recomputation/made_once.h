#pragma once

#include "csrc/schedule/recomputation/model.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth::schedule {

// Rows in which a value is kept, both included; none where the first is 0.
struct KeptRows {
  std::uint32_t first = 0, last = 0;
  friend bool operator==(const KeptRows&, const KeptRows&) = default;
};

// For the stages [first, last] of a plan that says only what is kept when the first begins and what
// when they have ended: all else that they want is recomputed once, in the first that wants it, and
// kept from there to its last use among them. By value; `first` is 1 at least.
// O(values + reads of what the stages want).
[[nodiscard]] std::vector<KeptRows> rows_made_once(const StageProblem& problem, std::size_t first,
                                                   std::size_t last,
                                                   const std::vector<std::uint8_t>& alternatives,
                                                   const std::vector<bool>& before,
                                                   const std::vector<bool>& after);

// Puts them into a plan, by its alternatives.
void keep_made_once(const StageProblem& problem, std::size_t first, std::size_t last,
                    const std::vector<bool>& before, const std::vector<bool>& after,
                    Recomputation& plan);

}  // namespace berth::schedule
