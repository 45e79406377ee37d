#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/plan/plan.h"

#include <cstdint>
#include <vector>

namespace berth {

// Bytes that some planned slots of one lane use, without a gap.
struct LaneBytes {
  ByteRange bytes;
  std::uint32_t lane = 0;
};

// All bytes that each lane ever uses, by address: those of one lane are disjoint and do not meet,
// those of different lanes overlap where lanes share bytes. O(n) and a sort of distinct offsets.
// Requires structure_violation(plan) == nullopt.
[[nodiscard]] std::vector<LaneBytes> bytes_of_lanes(const Plan& plan);

// Bytes that more than one lane uses, disjoint, by address.
[[nodiscard]] std::vector<ByteRange> shared_bytes(const std::vector<LaneBytes>& lanes);

}  // namespace berth
