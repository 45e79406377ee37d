#pragma once

#include "csrc/trace/step.h"
#include "csrc/trace/trace.h"

#include <cstdint>
#include <vector>

namespace berth {

// How much of a run a step explains: the requests that lie in whole repeats of it and have a place
// in a plan of it. What serving the plan hits is about that much; a step that differs from the
// others in a few requests counts as none here, and hits all but those there.
struct StepCoverage {
  struct Lane {
    std::uint64_t key = 0;
    trace::ThreadId thread = 0;  // that makes most of its requests
    std::uint64_t marks = 0;
    bool in_step = false;
    std::uint64_t requests = 0, covered_requests = 0;  // of bytes; those for none are left out
    Bytes bytes = 0, covered_bytes = 0;
  };
  std::vector<Lane> lanes;    // as Trace::lanes
  std::uint32_t primary = 0;  // index into lanes: the one that the step was cut by

  // Between 0 and 1; of no requests it is 1.
  [[nodiscard]] double share_of_requests() const;
  [[nodiscard]] double share_of_bytes() const;
};

// `step` is one of `trace`. Repeats are found from the front and do not overlap. O(entries).
[[nodiscard]] StepCoverage coverage_of(const Trace& trace, const Step& step);

}  // namespace berth
