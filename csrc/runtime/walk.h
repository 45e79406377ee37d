#pragma once

#include "csrc/plan/lookup.h"
#include "csrc/runtime/lane.h"
#include "csrc/runtime/occupancy.h"
#include "csrc/runtime/path.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace berth {

// How lanes move through a plan: which slot a lane's next request is, and which slots end before
// it.
//
// A position is a tick of the lane's path: all ends up to it were looked at, and what was live
// there came off schedule (Occupancy). Time is a circle, so a lane passes the step's end and begins
// again. A skip ahead is a walk; backwards, or to a mark that comes early, is a jump.
//
// Not thread-safe. The plan outlives what follows it. A request costs O(1) where it is as expected,
// O(Aligner::kReach) while it is not; a jump is O(what the plan has alive + what is off schedule),
// on plans with branches O(cells).
class Walk {
 public:
  using SlotIndex = PlanLookup::SlotIndex;

  explicit Walk(Occupancy& occupancy) noexcept : occupancy_(occupancy) {}
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  // The paths of a plan. Throws std::bad_alloc.
  struct Paths {
    Paths() = default;
    explicit Paths(const PlanLookup& lookup);
    std::vector<Path> paths;           // of each sequence
    std::vector<std::uint32_t> roots;  // the root sequence of each lane of the plan; kNone: none
  };
  void follow(const PlanLookup& lookup, Paths paths) noexcept;
  void leave() noexcept;

  // A lane that is new to the plan waits for its first mark.
  void start(Lane& lane) noexcept;

  // Which slot the lane's next request is, or why none of the plan's. The lane expects the slot
  // after that one then.
  struct Step {
    std::optional<SlotIndex> slot = {};
    bool known = true;       // without a slot: the lane is still to begin, and no request is amiss
    bool realigned = false;  // found somewhere else than expected
  };
  [[nodiscard]] Step next(Lane& lane, Bytes requested) noexcept;

  // A step ends. Returns whether the position had to jump.
  bool mark(Lane& lane) noexcept;

  // All that the lane has live is off schedule from here on.
  void leave_schedule(const Lane& lane) noexcept;

  // Moves the lane's position forward to `tick` of its path.
  void advance(Lane& lane, std::uint32_t tick) noexcept {
    while (lane.position < tick) {
      ++lane.position;
      for (const std::uint32_t slot : lookup_->ends_at(lane.sequence, lane.position))
        occupancy_.expire(slot);
      if (lane.parent_ends) [[unlikely]]
        expire_ancestors(lane);
    }
  }

  // The first request since the plan was followed that it did not expect, `index` requests into the
  // step.
  struct Surprise {
    std::uint32_t index = 0;
    Bytes expected = 0, came = 0;
  };
  [[nodiscard]] const std::optional<Surprise>& first_surprise() const noexcept {
    return first_surprise_;
  }

  // How often a lane passed the end of its step without a mark, and how often one jumped.
  [[nodiscard]] std::uint64_t step_ends() const noexcept { return step_ends_; }
  [[nodiscard]] std::uint64_t jumps() const noexcept { return jumps_; }

  // Whether the plan has the slot alive where the lane stands.
  [[nodiscard]] bool on_schedule(const Lane& lane, SlotIndex slot) const noexcept;

 private:
  [[nodiscard]] const Path& path(const Lane& lane) const noexcept {
    return paths_.paths[lane.sequence];
  }
  [[nodiscard]] std::uint32_t root_of(const Lane& lane) const noexcept {
    return paths_.roots[lane.plan_lane];
  }
  Step next_aligned(Lane& lane, Bytes requested) noexcept;
  Step next_searching(Lane& lane, Bytes requested) noexcept;
  Step next_resting(Lane& lane, Bytes requested) noexcept;
  void guess(Lane& lane, Bytes requested) noexcept;
  void rest(Lane& lane, std::uint32_t run_needed) noexcept;
  void expect(Lane& lane, std::uint32_t index) noexcept;
  void pass_run_end(Lane& lane, Bytes requested) noexcept;
  void pass_step_end(Lane& lane) noexcept;
  bool take_branch(Lane& lane, Bytes requested) noexcept;
  void jump(Lane& lane, std::uint32_t sequence, std::uint32_t index) noexcept;
  template <class OnSchedule>
  void rebuild(std::uint32_t sequence, std::uint32_t position, OnSchedule&& on_schedule) noexcept;
  void expire_ancestors(Lane& lane) noexcept;

  Occupancy& occupancy_;
  const PlanLookup* lookup_ = nullptr;
  const PlanLookup::Entry* entries_ = nullptr;
  Paths paths_;
  std::uint64_t step_ends_ = 0, jumps_ = 0;
  std::optional<Surprise> first_surprise_;
};

}  // namespace berth
