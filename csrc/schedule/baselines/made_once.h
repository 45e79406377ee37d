#pragma once

#include "csrc/schedule/retention/model.h"

#include <cstddef>
#include <vector>

namespace berth::schedule {

// Fills in the rows of the stages [first, last] for a plan that says only what is kept when the
// first begins and what when they have ended: all else that they want is made again once, in the
// first that wants it, and kept from there to its last use among them. `first` is 1 at least.
// O(values x rows + reads).
void keep_made_once(const StageProblem& problem, std::size_t first, std::size_t last,
                    const std::vector<bool>& before, const std::vector<bool>& after,
                    Retention& plan);

}  // namespace berth::schedule
