#pragma once

#include "csrc/core/bytes.h"
#include "csrc/trace/trace.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace berth {

// The place of one request of a step.
//
// Ticks are those of its lane (see StepRequest): the lifetime is the arc [birth, birth + length) on
// the circle of `period` ticks, 0 < length <= period. offset == kUnplanned: the request belongs to
// the sequence but is served by the pool; its length may be 0, then, for not known.
struct Slot {
  static constexpr Bytes kUnplanned = ~Bytes{0};

  Bytes offset = 0;
  Bytes requested = 0;  // bytes as asked: what a request is matched by
  Bytes size = 0;       // reserved bytes, `requested` rounded up to the plan's alignment
  std::uint32_t birth = 0;
  std::uint32_t length = 0;
  std::uint32_t origin = 0;  // index into Plan::strings: operator or module that asked; 0 unknown
  // Of a bucket the least that was asked here of the steps that it was made for; at most
  // `requested`. 0: the slot serves requests of `requested` bytes only.
  Bytes least = 0;

  [[nodiscard]] bool bucket() const noexcept { return least != 0; }
  [[nodiscard]] bool planned() const noexcept { return offset != kUnplanned; }
  friend bool operator==(const Slot&, const Slot&) = default;
};

// The requests of one lane on one path of the step, in order.
//
// Sequences of one lane form a trie: a root (parent -1, fork 0, one a lane) holds the whole path; a
// branch leaves its parent, which comes before it in Plan::sequences, before tick `fork` of the
// parent's own part (parent's fork <= fork <= parent's period) and goes on with its own slots. Each
// has one slot at least. Every tick is a request: the k-th own slot is born at tick fork + k, and
// the path has a period of fork + slots.size() ticks.
//
// A lane runs one path after the other, any after any, and a slot lives for `length` ticks of what
// it runs. So slots of two branches neither of which is on the other's path never live at one time,
// but for what wraps around into the next step: there every path may follow. A slot on paths of
// different periods may not wrap around: birth + length is at most its own sequence's period, and
// less where one of them is longer than that. On a path that is shorter it lives to the end.
struct Sequence {
  std::uint32_t lane = 0;  // index into Plan::lane_keys
  std::int32_t parent = -1;
  std::uint32_t fork = 0;
  std::uint32_t period = 0;          // ticks of the whole path, prefix included
  std::vector<std::uint32_t> marks;  // ticks of the path before which a step mark is expected,
                                     // ascending, each below `period`
  std::vector<Slot> slots;

  friend bool operator==(const Sequence&, const Sequence&) = default;
};

// As StepEdge: proves an order between lanes, and so permits them to share bytes. Ticks are at most
// the period of their lane, which has one path (an edge of a lane with branches would not say on
// which).
struct PlanEdge {
  std::uint32_t from_lane = 0, from_tick = 0;
  std::uint32_t to_lane = 0, to_tick = 0;
  std::uint32_t delta = 0;
  friend bool operator==(const PlanEdge&, const PlanEdge&) = default;
};

// Assigns every request of one step a fixed offset in one arena, so that replaying the step neither
// searches nor calls the driver.
//
// Invariants, checked by verify(): offsets are multiples of `alignment`; offset + size <=
// arena_bytes; slots that can be alive together share no byte. Plain data; owns no device memory.
struct Plan {
  // Caps, so that no file makes us allocate or search without end.
  static constexpr std::size_t kMaxSlots = std::size_t{1} << 24;
  static constexpr std::size_t kMaxLanes = 4096;
  static constexpr std::size_t kMaxSequences = std::size_t{1} << 16;
  static constexpr std::size_t kMaxDepth = 64;  // of the trie: sequences on one path
  static constexpr std::size_t kMaxPathTicks = std::size_t{1} << 28;  // of all paths together
  static constexpr std::size_t kMaxMarks = std::size_t{1} << 24;
  static constexpr std::size_t kMaxEdges = std::size_t{1} << 18;
  static constexpr std::size_t kMaxJoinedLanes = 64;                    // lanes that edges name
  static constexpr std::uint32_t kMaxDelta = 64;                        // of an edge
  static constexpr std::size_t kMaxStringBytes = std::size_t{1} << 26;  // all texts together
  static constexpr Bytes kMaxAlignment = Bytes{2} << 20;

  trace::Program program;                // who made it
  Bytes alignment = 64;                  // of offsets, and the unit sizes are rounded up to
  std::vector<std::uint64_t> lane_keys;  // trace::Lane::key of each lane, all different; each has
                                         // a root, and so requests
  std::vector<Sequence> sequences;
  std::vector<PlanEdge> edges;
  std::vector<std::string> strings = {""};  // the first is empty
  Bytes arena_bytes = 0;                    // high-water mark, exactly: max(offset + size)
  Bytes lower_bound = 0;                    // no plan of these requests is smaller
  std::string engine;                       // of the planner
  std::uint64_t seed = 0;
  double plan_seconds = 0;

  [[nodiscard]] std::size_t slot_count() const noexcept {
    std::size_t count = 0;
    for (const Sequence& sequence : sequences) count += sequence.slots.size();
    return count;
  }
  friend bool operator==(const Plan&, const Plan&) = default;
};

// Hash of the requests of a plan: keys of lanes, branches, sizes as asked, their order. Plans of
// equal requests are equal in it, wherever their slots are.
[[nodiscard]] std::uint64_t fingerprint(const Plan& plan) noexcept;

}  // namespace berth
