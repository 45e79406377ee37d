#pragma once

#include "csrc/replay/workload.h"

#include <cstdint>

namespace berth::replay {

// How a workload is made unlike itself, to see what that costs once a plan was learned. Rates are
// shares of the requests after the third step, or of the second half where so many steps are not
// marked.
struct Perturbation {
  double insert = 0;  // extra requests, of a size that occurs, freed soon after
  double drop = 0;    // requests that are not made
  double resize = 0;  // half to twice the size
  double swap = 0;    // requests that change places with the next one
};

// Deterministic for a seed.
[[nodiscard]] Workload perturb(const Workload& workload, const Perturbation& perturbation,
                               std::uint64_t seed);

}  // namespace berth::replay
