#pragma once

#include "csrc/plan/plan.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace berth::test {

// Whether two arcs on a circle of `period` ticks share a tick.
inline bool arcs_meet(const Slot& a, const Slot& b, std::uint32_t period) {
  const auto contains = [period](const Slot& slot, std::uint32_t tick) {
    return (tick + period - slot.birth) % period < slot.length;
  };
  return contains(a, b.birth) || contains(b, a.birth);
}

// Gives the slots of one sequence, in a random order, the lowest offsets at which each meets
// nobody. Returns the high-water mark.
inline Bytes place_first_fit(std::vector<Slot>& slots, std::uint32_t period, Bytes base,
                             std::mt19937& random) {
  std::vector<std::size_t> order(slots.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  Bytes peak = base;
  for (std::size_t i = 0; i < order.size(); ++i) {
    Slot& slot = slots[order[i]];
    std::vector<std::pair<Bytes, Bytes>> taken;
    for (std::size_t j = 0; j < i; ++j) {
      const Slot& other = slots[order[j]];
      if (arcs_meet(slot, other, period))
        taken.emplace_back(other.offset, other.offset + other.size);
    }
    std::sort(taken.begin(), taken.end());
    slot.offset = base;
    for (const auto& [first, last] : taken) {
      if (first >= slot.offset + slot.size) break;
      slot.offset = std::max(slot.offset, last);
    }
    peak = std::max(peak, slot.offset + slot.size);
  }
  return peak;
}

// A legal plan of one lane: `count` requests of 1 to `max_units` units of 64 bytes, lifetimes that
// are mostly short, many around the end of the step.
inline Plan random_plan(std::uint32_t count, std::uint32_t max_units, std::mt19937& random) {
  Plan plan;
  plan.lane_keys = {0};
  Sequence sequence;
  sequence.period = count;
  sequence.marks = {0};
  for (std::uint32_t birth = 0; birth < count; ++birth) {
    Slot slot;
    slot.birth = birth;
    const std::uint32_t most = random() % 4 == 0 ? count : std::max(1u, count / 6);
    slot.length = 1 + random() % most;
    slot.size = 64 * (1 + random() % max_units);
    slot.requested = slot.size - random() % 64;
    sequence.slots.push_back(slot);
  }
  plan.arena_bytes = place_first_fit(sequence.slots, count, 0, random);
  plan.sequences.push_back(std::move(sequence));
  return plan;
}

}  // namespace berth::test
