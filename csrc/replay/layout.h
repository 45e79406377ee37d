#pragma once

#include "csrc/core/bytes.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace berth::replay {

// How a request was served, of allocators that plan.
enum class Outcome : std::uint8_t {
  kUnknown,
  kHit,        // as planned
  kHitBucket,  // at the place of a larger one
  kLent,       // at other bytes of the arena
  kMissSize,   // another request than the plan expects
  kMissBusy,   // its bytes were in use
  kMissLane,   // a lane that the plan does not have
  kUnplanned,  // before a plan served, or left to the pool by it
};

// Where an allocator put the blocks of a workload, and what it held meanwhile. Addresses are the
// allocator's own: they say which blocks share bytes, and nothing beyond the run. Plain data.
struct Layout {
  static constexpr std::uint64_t kNowhere = std::numeric_limits<std::uint64_t>::max();

  std::vector<std::uint64_t> addresses;  // one a block; kNowhere: it was not served
  std::vector<Bytes> reserved;           // after the request of each block; none where not known
  std::vector<Outcome> outcomes;         // one a block, or none
  Bytes reserved_peak = 0;
};

}  // namespace berth::replay
