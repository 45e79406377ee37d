#pragma once

#include "csrc/plan/plan.h"
#include "csrc/trace/step_kinds.h"

#include <span>
#include <vector>

namespace berth {

// A plan of several kinds of steps, without offsets, and what placing it must know beside it.
//
// Each lane has a root and branches: kinds that begin with the same requests share the slots of
// those, with the longest of their lifetimes, as far as a plan can say so (see Sequence). Kinds
// that blocks of others live through share none with those that free such blocks first: by what is
// in use they are told apart.
struct KindPlan {
  Plan plan;
  // Of each sequence: blocks of other kinds live through all of its steps.
  std::vector<bool> outlived;
  // Of each slot of each sequence: it lives through those.
  std::vector<std::vector<bool>> spans;
  // Of each lane: the tick before which the first such block is freed, in kinds that free them. Up
  // to there all kinds may share slots.
  std::vector<std::uint32_t> releases;
};

// Lanes in the order in which they come, rounded sizes, a mark before every step; every planned
// slot at offset 0. O(kinds squared, times their requests).
//
// Throws Error(kUsage) for an alignment that no plan may have, or a request above kMaxBytes.
[[nodiscard]] KindPlan skeleton(std::span<const StepKind> kinds, const trace::Program& program,
                                Bytes alignment);

}  // namespace berth
