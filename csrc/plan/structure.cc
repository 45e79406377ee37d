#include "csrc/plan/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace berth {
namespace {

using Violation = std::optional<std::string>;

// Shortest and longest path.
struct Periods {
  std::uint32_t shortest = 0;
  std::uint32_t longest = 0;

  void add(Periods other) noexcept {
    shortest = std::min(shortest, other.shortest);
    longest = std::max(longest, other.longest);
  }
};

Violation check_size(const Plan& plan) {
  // mutant: plan-lanes
  if (plan.lane_keys.size() > Plan::kMaxLanes) {
    return fmt::format("{} lanes, the limit is {}", plan.lane_keys.size(), Plan::kMaxLanes);
  }
  // mutant: plan-sequences
  if (plan.sequences.size() > Plan::kMaxSequences) {
    return fmt::format("{} sequences, the limit is {}", plan.sequences.size(), Plan::kMaxSequences);
  }
  // mutant: plan-slots
  if (plan.slot_count() > Plan::kMaxSlots) {
    return fmt::format("{} slots, the limit is {}", plan.slot_count(), Plan::kMaxSlots);
  }
  // mutant: plan-edges
  if (plan.edges.size() > Plan::kMaxEdges) {
    return fmt::format("{} edges, the limit is {}", plan.edges.size(), Plan::kMaxEdges);
  }
  std::size_t marks = 0;
  for (const Sequence& sequence : plan.sequences) marks += sequence.marks.size();
  // mutant: plan-marks
  if (marks > Plan::kMaxMarks) {
    return fmt::format("{} marks, the limit is {}", marks, Plan::kMaxMarks);
  }
  std::size_t text = plan.program.torch_version.size() + plan.program.device_name.size() +
                     plan.program.tag.size() + plan.engine.size();
  for (const std::string& string : plan.strings) text += string.size() + 1;
  // mutant: plan-texts
  if (text > Plan::kMaxStringBytes) {
    return fmt::format("{} bytes of strings, the limit is {}", text, Plan::kMaxStringBytes);
  }
  return std::nullopt;
}

Violation check_head(const Plan& plan) {
  // mutant: plan-alignment
  if (!is_power_of_two(plan.alignment) || plan.alignment > Plan::kMaxAlignment) {
    return fmt::format("alignment {}, it must be a power of two up to {}", plan.alignment,
                       Plan::kMaxAlignment);
  }
  // mutant: plan-arena-limit
  if (plan.arena_bytes > kMaxBytes) {
    return fmt::format("an arena of {} bytes, the limit is {}", plan.arena_bytes, kMaxBytes);
  }
  if (plan.lower_bound > plan.arena_bytes) {
    return fmt::format("lower bound {} above the arena's {} bytes", plan.lower_bound,
                       plan.arena_bytes);
  }
  if (!std::isfinite(plan.plan_seconds) || plan.plan_seconds < 0) {
    return fmt::format("planned in {} seconds", plan.plan_seconds);
  }
  // mutant: plan-first-text
  if (plan.strings.empty() || !plan.strings.front().empty()) {
    return "the first of the strings is not the empty one";
  }
  std::vector<std::uint64_t> keys = plan.lane_keys;
  std::sort(keys.begin(), keys.end());
  // mutant: plan-keys
  if (const auto twin = std::adjacent_find(keys.begin(), keys.end()); twin != keys.end()) {
    return fmt::format("two lanes have the key {}", *twin);
  }
  return std::nullopt;
}

// The trie: every path has a period of at most slot_count() ticks once this holds.
Violation check_sequences(const Plan& plan) {
  std::size_t ticks = 0;
  std::vector<bool> has_root(plan.lane_keys.size(), false);
  std::vector<std::size_t> depths(plan.sequences.size(), 1);
  for (std::size_t s = 0; s < plan.sequences.size(); ++s) {
    const Sequence& sequence = plan.sequences[s];
    // mutant: plan-lane
    if (sequence.lane >= plan.lane_keys.size()) {
      return fmt::format("sequence {} is of lane {}, there are {}", s, sequence.lane,
                         plan.lane_keys.size());
    }
    if (sequence.parent < 0) {
      // mutant: plan-parent
      if (sequence.parent != -1) {
        return fmt::format("sequence {} has parent {}", s, sequence.parent);
      }
      // mutant: plan-root-fork
      if (sequence.fork != 0) {
        return fmt::format("sequence {} has no parent, but leaves it at tick {}", s, sequence.fork);
      }
      // mutant: plan-two-roots
      if (has_root[sequence.lane]) {
        return fmt::format("sequence {} is a second root of lane {}", s, sequence.lane);
      }
      has_root[sequence.lane] = true;
    } else {
      // mutant: plan-parent-order
      if (static_cast<std::size_t>(sequence.parent) >= s) {
        return fmt::format("sequence {} has parent {}, which does not come before it", s,
                           sequence.parent);
      }
      const Sequence& parent = plan.sequences[static_cast<std::size_t>(sequence.parent)];
      // mutant: plan-parent-lane
      if (parent.lane != sequence.lane) {
        return fmt::format("sequence {} of lane {} has parent {} of lane {}", s, sequence.lane,
                           sequence.parent, parent.lane);
      }
      // mutant: plan-fork
      if (sequence.fork < parent.fork || sequence.fork > parent.period) {
        return fmt::format(
            "sequence {} leaves sequence {} at tick {}, the part of that one is [{}, {})", s,
            sequence.parent, sequence.fork, parent.fork, parent.period);
      }
      depths[s] = depths[static_cast<std::size_t>(sequence.parent)] + 1;
      // mutant: plan-depth
      if (depths[s] > Plan::kMaxDepth) {
        return fmt::format("sequence {} is at depth {}, the limit is {}", s, depths[s],
                           Plan::kMaxDepth);
      }
    }
    // mutant: plan-empty
    if (sequence.slots.empty()) return fmt::format("sequence {} has no slots", s);
    // mutant: plan-period
    if (sequence.period != sequence.fork + sequence.slots.size()) {
      return fmt::format("sequence {} has period {}, it forks at {} and has {} slots", s,
                         sequence.period, sequence.fork, sequence.slots.size());
    }
    for (std::size_t m = 0; m < sequence.marks.size(); ++m) {
      const std::uint32_t mark = sequence.marks[m];
      // mutant: plan-mark-late, plan-mark-order
      if (mark >= sequence.period || (m > 0 && mark < sequence.marks[m - 1])) {
        return fmt::format("mark {} of sequence {} is at tick {}: marks ascend below period {}", m,
                           s, mark, sequence.period);
      }
    }
    ticks += sequence.period;
  }
  // mutant: plan-no-root
  if (const auto bare = std::find(has_root.begin(), has_root.end(), false);
      bare != has_root.end()) {
    return fmt::format("lane {} has no sequence", bare - has_root.begin());
  }
  // mutant: plan-ticks
  if (ticks > Plan::kMaxPathTicks) {
    return fmt::format("{} ticks on all paths together, the limit is {}", ticks,
                       Plan::kMaxPathTicks);
  }
  return std::nullopt;
}

Violation check_slot(const Plan& plan, const Sequence& sequence, std::uint32_t s, std::size_t k,
                     const Periods& paths, Bytes& high_water_mark) {
  const Slot& slot = sequence.slots[k];
  // mutant: plan-birth
  if (slot.birth != sequence.fork + k) {
    return fmt::format("{} is born at tick {}, its place is {}", slot_name(s, k), slot.birth,
                       sequence.fork + k);
  }
  // mutant: plan-nothing, plan-huge
  if (slot.requested == 0 || slot.requested > kMaxBytes) {
    return fmt::format("{} is for {} bytes, the limit is {}", slot_name(s, k), slot.requested,
                       kMaxBytes);
  }
  // mutant: plan-size
  if (slot.size != align_up(slot.requested, plan.alignment)) {
    return fmt::format("{} has {} bytes for {}, rounded up to {} these are {}", slot_name(s, k),
                       slot.size, slot.requested, plan.alignment,
                       align_up(slot.requested, plan.alignment));
  }
  // mutant: plan-least
  if (slot.least > slot.requested) {
    return fmt::format("{} is for {} bytes at most and {} at least", slot_name(s, k),
                       slot.requested, slot.least);
  }
  // mutant: plan-origin
  if (slot.origin >= plan.strings.size()) {
    return fmt::format("{} has origin {}, there are {} strings", slot_name(s, k), slot.origin,
                       plan.strings.size());
  }
  if (!slot.planned()) {
    // mutant: plan-pool-length
    if (slot.length > sequence.period) {
      return fmt::format("{} lives for {} of {} ticks", slot_name(s, k), slot.length,
                         sequence.period);
    }
    return std::nullopt;
  }
  // mutant: plan-no-length, plan-length
  if (slot.length == 0 || slot.length > sequence.period) {
    return fmt::format("{} lives for {} of {} ticks", slot_name(s, k), slot.length,
                       sequence.period);
  }
  const std::uint64_t last = std::uint64_t{slot.birth} + slot.length;
  // mutant: kinds-shared-ends, plan-wraps-behind, plan-wraps-longer
  if (paths.shortest != paths.longest && last >= sequence.period &&
      (last > sequence.period || paths.longest > sequence.period)) {
    return fmt::format("{} lives over [{}, {}), on paths of {} to {} ticks it cannot wrap around",
                       slot_name(s, k), slot.birth, std::uint64_t{slot.birth} + slot.length,
                       paths.shortest, paths.longest);
  }
  // mutant: plan-offset
  if (slot.offset % plan.alignment != 0) {
    return fmt::format("{} is at {}, no multiple of {}", slot_name(s, k), slot.offset,
                       plan.alignment);
  }
  const std::optional<Bytes> end = checked_add(slot.offset, slot.size);
  // mutant: plan-bounds, plan-overflow
  if (!end || *end > plan.arena_bytes) {
    return fmt::format("{} of {} bytes at {} is out of bounds, the arena has {}", slot_name(s, k),
                       slot.size, slot.offset, plan.arena_bytes);
  }
  high_water_mark = std::max(high_water_mark, *end);
  return std::nullopt;
}

Violation check_slots(const Plan& plan) {
  // The periods of a sequence's own path and of all that branch off it, directly or not.
  std::vector<Periods> through(plan.sequences.size());
  std::vector<std::uint32_t> branches;  // sorted by parent, then by fork
  for (std::size_t s = 0; s < plan.sequences.size(); ++s) {
    through[s] = {plan.sequences[s].period, plan.sequences[s].period};
    if (plan.sequences[s].parent >= 0) branches.push_back(static_cast<std::uint32_t>(s));
  }
  for (std::size_t s = plan.sequences.size(); s-- > 0;) {
    const std::int32_t parent = plan.sequences[s].parent;
    if (parent >= 0) through[static_cast<std::size_t>(parent)].add(through[s]);
  }
  std::sort(branches.begin(), branches.end(), [&](std::uint32_t a, std::uint32_t b) {
    const Sequence &x = plan.sequences[a], &y = plan.sequences[b];
    return x.parent != y.parent ? x.parent < y.parent : x.fork < y.fork;
  });

  Bytes high_water_mark = 0;
  auto branch = branches.begin();
  for (std::uint32_t s = 0; s < plan.sequences.size(); ++s) {
    const Sequence& sequence = plan.sequences[s];
    const auto first = branch;
    while (branch != branches.end() &&
           plan.sequences[*branch].parent == static_cast<std::int32_t>(s)) {
      ++branch;
    }
    // Backwards, so that branches join the paths that go through a slot one by one.
    Periods paths{sequence.period, sequence.period};
    auto next = branch;
    for (std::size_t k = sequence.slots.size(); k-- > 0;) {
      while (next != first && plan.sequences[*(next - 1)].fork > sequence.fork + k) {
        paths.add(through[*--next]);
      }
      if (auto bad = check_slot(plan, sequence, s, k, paths, high_water_mark)) return bad;
    }
  }
  // mutant: plan-arena
  if (high_water_mark != plan.arena_bytes) {
    return fmt::format("an arena of {} bytes, the slots end at {}", plan.arena_bytes,
                       high_water_mark);
  }
  return std::nullopt;
}

Violation check_edges(const Plan& plan) {
  std::vector<std::uint32_t> periods(plan.lane_keys.size());
  std::vector<bool> branches(plan.lane_keys.size(), false);
  for (const Sequence& sequence : plan.sequences) {
    if (sequence.parent < 0) {
      periods[sequence.lane] = sequence.period;
    } else {
      branches[sequence.lane] = true;
    }
  }
  std::vector<bool> joined(plan.lane_keys.size(), false);
  for (std::size_t e = 0; e < plan.edges.size(); ++e) {
    const PlanEdge& edge = plan.edges[e];
    for (const auto& [lane, tick] :
         {std::pair{edge.from_lane, edge.from_tick}, std::pair{edge.to_lane, edge.to_tick}}) {
      // mutant: plan-edge-lane
      if (lane >= plan.lane_keys.size()) {
        return fmt::format("edge {} names lane {}, there are {}", e, lane, plan.lane_keys.size());
      }
      // mutant: plan-edge-branches
      if (branches[lane]) {
        return fmt::format("edge {} names lane {}, which has branches", e, lane);
      }
      // mutant: plan-edge-tick
      if (tick > periods[lane]) {
        return fmt::format("edge {} names tick {} of lane {}, which has {}", e, tick, lane,
                           periods[lane]);
      }
      joined[lane] = true;
    }
    // mutant: plan-edge-itself
    if (edge.from_lane == edge.to_lane) {
      return fmt::format("edge {} joins lane {} to itself", e, edge.from_lane);
    }
    // mutant: plan-edge-delta
    if (edge.delta > Plan::kMaxDelta) {
      return fmt::format("edge {} spans {} steps, the limit is {}", e, edge.delta, Plan::kMaxDelta);
    }
  }
  const auto count = static_cast<std::size_t>(std::count(joined.begin(), joined.end(), true));
  // mutant: plan-edge-joined
  if (count > Plan::kMaxJoinedLanes) {
    return fmt::format("edges join {} lanes, the limit is {}", count, Plan::kMaxJoinedLanes);
  }
  return std::nullopt;
}

}  // namespace

std::string slot_name(std::uint32_t sequence, std::size_t slot) {
  return fmt::format("slot {} of sequence {}", slot, sequence);
}

std::optional<std::string> structure_violation(const Plan& plan) {
  for (const auto check : {check_size, check_head, check_sequences, check_slots, check_edges}) {
    if (auto bad = check(plan)) return bad;
  }
  return std::nullopt;
}

}  // namespace berth
