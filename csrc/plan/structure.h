#pragma once

#include "csrc/plan/plan.h"

#include <optional>
#include <string>

namespace berth {

// Whether a plan is well formed: caps, lanes, the trie of sequences, births, marks, sizes, arcs,
// alignment, bounds, indices. All that verify() wants but the disjointness of what lives together.
// Returns the first violation, in one line that names the slot. O(n log n).
[[nodiscard]] std::optional<std::string> structure_violation(const Plan& plan);

// "slot 3 of sequence 1", for messages.
[[nodiscard]] std::string slot_name(std::uint32_t sequence, std::size_t slot);

}  // namespace berth
