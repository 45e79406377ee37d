#pragma once

#include "csrc/plan/plan.h"
#include "csrc/trace/step_kinds.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace berth {

// A plan of several kinds of steps, without offsets, and what placing it must know beside it.
//
// Each lane has a root and branches: kinds that begin with the same requests share the slots of
// those, with the longest of their lifetimes, as far as a plan can say so (see Sequence).
//
// What outlives its step ends in later ones at ticks of their own: gradients at the start of a step
// of training, or after all of an evaluation before it. So placing has a time of its own, in which
// the releases of all kinds of a lane are at one tick, that of the latest of them. What comes
// before the release of a kind keeps its tick, and what comes after it keeps its distance to it.
// Kinds whose releases are at different ticks share slots up to the sooner one only.
struct KindPlan {
  Plan plan;
  // Of each sequence: StepKind::release of the kind that it was made for. Not above those of its
  // branches.
  std::vector<std::uint32_t> releases;
  // Of each lane: the latest release of a kind.
  std::vector<std::uint32_t> latest;
  // Of each slot of each sequence, where it outlives its step: the tick of that time at which it
  // ends in later steps.
  std::vector<std::vector<std::optional<std::uint64_t>>> ends;
};

// Lanes in the order in which they come, rounded sizes, a mark before every step; every planned
// slot at offset 0. O(kinds squared, times their requests).
//
// Throws Error(kUsage) for an alignment that no plan may have, or a request above kMaxBytes.
[[nodiscard]] KindPlan skeleton(std::span<const StepKind> kinds, const trace::Program& program,
                                Bytes alignment);

}  // namespace berth
