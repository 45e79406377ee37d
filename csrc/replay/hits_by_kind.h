#pragma once

#include "csrc/replay/result.h"
#include "csrc/replay/workload.h"

#include <cstdint>
#include <vector>

namespace berth::replay {

// How the steps of one kind were served. A kind is told by the sizes of its requests; where more
// than StepKinds::kMostOfShape of them differ but have equally many requests they are one, as with
// inputs of many lengths. Steps that came once and are of no such kind are one together.
struct KindResult {
  std::uint64_t steps = 0;
  std::uint64_t step_requests = 0;  // of each; 0: of steps that came once
  bool many_sizes = false;
  std::uint64_t requests = 0, hits = 0, misses = 0;  // of all its steps
  std::uint64_t late_requests = 0, late_hits = 0;    // from its fourth step on
};

// Most steps first; those that came once last. `steps` are those of a replay of `workload`.
[[nodiscard]] std::vector<KindResult> hits_by_kind(const Workload& workload,
                                                   const std::vector<StepResult>& steps);

}  // namespace berth::replay
