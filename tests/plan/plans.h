#pragma once

#include "csrc/core/bytes.h"
#include "csrc/plan/plan.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace berth::test {

// A slot as it is drawn: where, how much, how long. Its birth follows from its place.
struct Place {
  Bytes offset = 0;
  Bytes bytes = 0;
  std::uint32_t length = 0;
};

// A root of `lane`, of slots in order.
inline Sequence sequence(std::uint32_t lane, const std::vector<Place>& places,
                         std::uint32_t alignment = 64) {
  Sequence result;
  result.lane = lane;
  for (const Place& place : places) {
    result.slots.push_back({.offset = place.offset,
                            .requested = place.bytes,
                            .size = align_up(place.bytes, alignment),
                            .birth = static_cast<std::uint32_t>(result.slots.size()),
                            .length = place.length,
                            .origin = 0});
  }
  result.period = static_cast<std::uint32_t>(result.slots.size());
  return result;
}

// The same as a branch that leaves `parent` before tick `fork`.
inline Sequence branch(std::uint32_t lane, std::int32_t parent, std::uint32_t fork,
                       const std::vector<Place>& places, std::uint32_t alignment = 64) {
  Sequence result = sequence(lane, places, alignment);
  result.parent = parent;
  result.fork = fork;
  result.period += fork;
  for (Slot& slot : result.slots) slot.birth += fork;
  return result;
}

// Sets the arena to where the slots end.
inline Plan& fit(Plan& plan) {
  plan.arena_bytes = 0;
  for (const Sequence& of : plan.sequences) {
    for (const Slot& slot : of.slots) {
      if (slot.planned()) plan.arena_bytes = std::max(plan.arena_bytes, slot.offset + slot.size);
    }
  }
  return plan;
}

// A plan of these sequences, with keys 0, 1, .. for its lanes and an arena that fits.
inline Plan plan_of(std::vector<Sequence> sequences, std::vector<PlanEdge> edges = {},
                    Bytes alignment = 64) {
  Plan plan;
  plan.alignment = alignment;
  std::uint32_t lanes = 0;
  for (const Sequence& of : sequences) lanes = std::max(lanes, of.lane + 1);
  for (std::uint32_t lane = 0; lane < lanes; ++lane) plan.lane_keys.push_back(lane);
  plan.sequences = std::move(sequences);
  plan.edges = std::move(edges);
  return fit(plan);
}

}  // namespace berth::test
