#pragma once

#include "csrc/plan/lookup.h"
#include "csrc/plan/verify.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

// Plans by hand, for tests of serving.
namespace berth::test {

struct SlotSpec {
  Bytes offset, size;
  std::uint32_t length;
  Bytes least = 0;  // of a bucket
};
inline Sequence sequence_of(const std::vector<SlotSpec>& specs, std::uint32_t lane = 0) {
  Sequence sequence;
  sequence.lane = lane;
  sequence.period = static_cast<std::uint32_t>(specs.size());
  if (!specs.empty()) sequence.marks = {0};
  for (std::uint32_t i = 0; i < specs.size(); ++i)
    sequence.slots.push_back({.offset = specs[i].offset,
                              .requested = specs[i].size,
                              .size = (specs[i].size + 63) / 64 * 64,
                              .birth = i,
                              .length = specs[i].length,
                              .least = specs[i].least});
  return sequence;
}
// Leaves sequence `parent` of a plan before tick `fork`.
inline Sequence branch_of(std::int32_t parent, std::uint32_t fork,
                          const std::vector<SlotSpec>& specs, std::uint32_t lane = 0) {
  Sequence sequence = sequence_of(specs, lane);
  sequence.parent = parent;
  sequence.fork = fork;
  sequence.period += fork;
  for (Slot& slot : sequence.slots) slot.birth += fork;
  return sequence;
}
// The same without a look at whether it is legal.
inline Plan unverified_plan_of(std::vector<Sequence> sequences, std::vector<PlanEdge> edges = {}) {
  Plan plan;
  plan.edges = std::move(edges);
  for (const Sequence& sequence : sequences) {
    if (sequence.parent < 0) plan.lane_keys.push_back(plan.lane_keys.size());
    for (const Slot& slot : sequence.slots)
      if (slot.planned()) plan.arena_bytes = std::max(plan.arena_bytes, slot.offset + slot.size);
  }
  plan.sequences = std::move(sequences);
  return plan;
}
inline Plan plan_of(std::vector<Sequence> sequences, std::vector<PlanEdge> edges = {}) {
  Plan plan = unverified_plan_of(std::move(sequences), std::move(edges));
  if (const auto violation = verify(plan)) throw std::logic_error(*violation);
  return plan;
}
inline std::shared_ptr<const PlanLookup> look(const Plan& plan) {
  return std::make_shared<const PlanLookup>(plan);
}

}  // namespace berth::test
