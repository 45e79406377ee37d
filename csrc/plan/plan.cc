#include "csrc/plan/plan.h"

#include "csrc/core/checksum.h"

namespace berth {

std::uint64_t fingerprint(const Plan& plan) noexcept {
  std::uint64_t hash = hash_combine(0, plan.lane_keys.size());
  for (const std::uint64_t key : plan.lane_keys) hash = hash_combine(hash, key);
  for (const Sequence& sequence : plan.sequences) {
    hash = hash_combine(hash, sequence.lane);
    hash = hash_combine(hash, static_cast<std::uint64_t>(std::int64_t{sequence.parent}));
    hash = hash_combine(hash, sequence.fork);
    hash = hash_combine(hash, sequence.slots.size());
    for (const Slot& slot : sequence.slots) hash = hash_combine(hash, slot.requested);
  }
  return hash;
}

}  // namespace berth
