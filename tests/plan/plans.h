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

// All that a plan can hold, small enough to flip every bit of. The golden file of format 1 is this
// plan: it stays as it is for ever.
inline Plan golden_plan() {
  Plan plan = plan_of({sequence(0, {{0, 100, 2}, {128, 64, 1}, {Slot::kUnplanned, 5000, 0}}),
                       sequence(1, {{192, 1, 1}, {0, 64, 1}}),
                       sequence(2, {{256, 64, 1}, {320, 64, 1}, {320, 64, 2}}),
                       branch(2, 2, 1, {{320, 30, 1}, {320, 64, 2}})},
                      {{0, 2, 1, 1, 0}, {1, 2, 0, 0, 1}});
  plan.program = {.torch_version = "2.11.0",
                  .device_name = "cpu",
                  .device_bytes = Bytes{8} << 30,
                  .world_size = 4,
                  .rank = 3,
                  .tag = "golden"};
  plan.lane_keys = {0, 5, 77};
  plan.sequences[0].marks = {0, 2};
  plan.strings = {"", "aten::mm", "layer1"};
  plan.sequences[0].slots[0].origin = 1;
  plan.sequences[3].slots[1].origin = 2;
  plan.lower_bound = 320;
  plan.engine = "dive";
  plan.seed = 42;
  plan.plan_seconds = 0.25;
  return plan;
}

}  // namespace berth::test
