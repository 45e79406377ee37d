#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/plan/plan.h"

#include <optional>
#include <string>

namespace berth {

// The halves of verify() that look for shared bytes. Both require structure_violation(plan) ==
// nullopt, and return the first violation in one line that names the slots.

// Slots of one lane: on one path, or around the end of a step on any. O(n log n), times the depth
// of the trie where there are branches; O(n) memory.
[[nodiscard]] std::optional<std::string> lane_violation(const Plan& plan);

// Slots of different lanes. O(n log n), times the number of lanes that share bytes, if any do.
[[nodiscard]] std::optional<std::string> lanes_violation(const Plan& plan);

[[nodiscard]] inline ByteRange bytes_of(const Slot& slot) noexcept {
  return {slot.offset, slot.offset + slot.size};
}

// "slot 3 of sequence 1, 128 bytes at 64 over [3, 7)", for messages.
[[nodiscard]] std::string slot_text(const Plan& plan, std::uint32_t sequence, std::size_t slot);

}  // namespace berth
