#pragma once

#include "csrc/plan/plan.h"

#include <optional>
#include <string>

namespace berth {

// Whether a plan is well formed: all that verify() wants but the disjointness of what lives
// together. Returns the first violation, in one line that names the slot. O(n log n).
//
// Serving reads a plan that has passed without further checks. This is what it expects, each with a
// refusal of its own, and who expects it:
//
// - Few lanes, sequences, slots, marks, edges and texts (Plan::kMax..). Occupancy keeps flags in
//   the upper bits of a slot's number; PathOrder sorts paths.
// - Few ticks on all paths together. PathOrder and head_of() compare paths request by request.
// - An alignment that is a power of two. OffsetTable shifts by it, Occupancy masks with it.
// - Keys of lanes that differ. Lanes finds a lane by its key.
// - A root of each lane, and one only. Walk begins a step there; Walk and PlanLookup take a plan
//   with more sequences than lanes for one that has branches.
// - A lane that is there. Walk and Lanes look up the lane of a sequence.
// - A parent that comes before its branch, in the same lane, not too deep. Path, PathOrder and
//   PlanLookup climb from parent to parent.
// - A fork within the parent's own part; at tick 0 where there is no parent. Path takes the
//   parent's slots up to the fork, PlanLookup counts the own ticks from there.
// - A slot in each sequence. Walk expects the first slot of a path, and the last sequence that has
//   slots on a path to be the one that it follows; Aligner divides by the number of slots.
// - A period of the fork and the slots. Walk counts positions modulo the period.
// - Marks that ascend below the period. Walk jumps to the slot that is born there.
// - The k-th own slot born at tick fork + k. Path, Lending and PlanLookup find slots by adding.
// - A request of 1 to kMaxBytes bytes. Sums of offsets and sizes do not overflow.
// - A size that is the request rounded up. Occupancy rounds the request and reads no size.
// - A least request of a bucket that is not above its largest. Walk looks for what lies between.
// - An origin among the texts, the first of which is empty. Reports name a slot by it.
// - A planned lifetime of one tick to one period. Walk tells by its age whether a slot is alive;
//   AliveIndex lists it once. A slot of the pool may have a lifetime of 0 ticks.
// - No lifetime around the end of a step where the slot is on paths of different periods.
//   PlanLookup has one end for each slot, whatever path is followed.
// - An offset that is a multiple of the alignment. The base of the arena is one.
// - A slot within the arena, and an arena that ends with the last slot. ArenaMemory reserves the
//   arena's bytes and maps the pages under slots.
// - Edges of lanes that are there, differ, and have no branches; at ticks of their paths; over few
//   steps. LaneOrder counts ticks modulo one period a lane.
//
// lane_violation() and lanes_violation() (sweep.h) add: slots that live together share no byte.
// Occupancy has one live block a cell, and the fast path looks at no other slot.
[[nodiscard]] std::optional<std::string> structure_violation(const Plan& plan);

// "slot 3 of sequence 1", for messages.
[[nodiscard]] std::string slot_name(std::uint32_t sequence, std::size_t slot);

}  // namespace berth
