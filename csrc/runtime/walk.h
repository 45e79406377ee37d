#pragma once

#include "csrc/plan/lookup.h"
#include "csrc/runtime/lane.h"
#include "csrc/runtime/occupancy.h"
#include "csrc/runtime/path.h"
#include "csrc/runtime/path_order.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace berth {

// How lanes move through a plan: which slot a lane's next request is, and which slots end before
// it.
//
// A position is a tick of the lane's path: all ends up to it were looked at, and what was live
// there came off schedule (Occupancy). Time is a circle, so a lane passes the step's end and begins
// again, on the root's path. A skip ahead is a walk; backwards, to a mark that comes early, or from
// one path to another, is a jump.
//
// Where a request is not the path's next one, but that of another path whose requests were the same
// up to here, the lane goes on there: the kinds of steps of a program are told apart by what they
// ask for.
//
// Not thread-safe. The plan outlives what follows it. A request costs O(1) where it is as expected,
// O(Aligner::kReach + paths that begin alike) while it is not; a jump is O(what the plan has alive
// + what is off schedule).
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
    // The path on which a step of each lane begins while nothing shows which it is: the root's, or
    // one that makes the same requests, to its end, and whose blocks live longer. Where such a path
    // was taken already, what it left behind says so.
    std::vector<std::uint32_t> starts;
    // Whether the blocks of path `a` live longer than those of `b`, over the requests that both
    // have. False where paths are very long altogether.
    [[nodiscard]] bool live_longer(std::uint32_t a, std::uint32_t b) const noexcept {
      if (weights_.empty()) return false;
      const std::size_t count = std::min(weights_[a].size(), weights_[b].size());
      return count != 0 && weights_[a][count - 1] > weights_[b][count - 1];
    }
    PathOrder order;

   private:
    void weigh(const PlanLookup& lookup);
    void find_starts();
    std::vector<std::vector<float>>
        weights_;  // of each path: bytes times ticks, up to each request
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

  // Where another path expects the request, too, that was to be served at `slot`: calls
  // usable(slot of that path), and once it says yes goes on there. The lane expects the slot after
  // that one then.
  template <class Usable>
  [[nodiscard]] std::optional<SlotIndex> other_way(Lane& lane, SlotIndex slot, Bytes requested,
                                                   Usable&& usable) noexcept {
    std::optional<SlotIndex> other;
    const std::uint32_t index = path(lane).index(slot);
    const bool bucket = lookup_->is_bucket(slot);
    paths_.order.for_each_alike(lane.sequence, index, [&](std::uint32_t sequence) {
      const Path& way = paths_.paths[sequence];
      if (index >= way.size()) return false;
      const SlotIndex there = way.slot(index);
      const bool fits =
          bucket ? in_bucket(there, requested) : entries_[there].requested == requested;
      if (there == slot || !fits || !usable(there)) return false;
      jump(lane, {sequence, index});
      other = lane.next++;
      return true;
    });
    return other;
  }

  // A step ends. Returns whether the position had to jump.
  bool mark(Lane& lane) noexcept;

  // All that the lane has live is off schedule from here on.
  void leave_schedule(const Lane& lane) noexcept;

  // Moves the lane's position forward to `tick` of its path.
  void advance(Lane& lane, std::uint32_t tick) noexcept {
    while (lane.position < tick) {
      // mutant: ends-walk
      ++lane.position;
      for (const std::uint32_t slot : lookup_->ends_at(lane.sequence, lane.position))
        occupancy_.expire(slot);
      // mutant: branch-ends
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

  // What the plan expected of the lane's last request, which next() or the rule had no slot for.
  struct Expected {
    std::uint32_t kind = 0, index = 0;  // sequence whose path it follows, and request on it
    std::uint32_t requests = 0;         // of that path
    Bytes size = 0;                     // 0: nothing, the lane rests
  };
  [[nodiscard]] Expected expected(const Lane& lane, bool slot_found) const noexcept;

  // How often a lane passed the end of its step without a mark, and how often one jumped.
  [[nodiscard]] std::uint64_t step_ends() const noexcept { return step_ends_; }
  [[nodiscard]] std::uint64_t jumps() const noexcept { return jumps_; }

  // Whether the plan has the slot alive where the lane stands.
  [[nodiscard]] bool on_schedule(const Lane& lane, SlotIndex slot) const noexcept;
  // Where a slot is on the lane's path, and how many slots that has.
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> place(const Lane& lane,
                                                              SlotIndex slot) const noexcept {
    return {path(lane).index(slot), path(lane).size()};
  }
  [[nodiscard]] const Path& path(const Lane& lane) const noexcept { return path(lane.sequence); }
  [[nodiscard]] const Path& path(std::uint32_t sequence) const noexcept {
    return paths_.paths[sequence];
  }
  // The sequences that have slots on the lane's path.
  [[nodiscard]] const std::vector<std::uint32_t>& sequences(const Lane& lane) const noexcept {
    return path(lane).sequences();
  }

 private:
  [[nodiscard]] std::uint32_t root_of(const Lane& lane) const noexcept {
    return paths_.roots[lane.plan_lane];
  }
  [[nodiscard]] std::uint32_t start_of(const Lane& lane) const noexcept {
    return paths_.starts[lane.plan_lane];
  }
  Step next_aligned(Lane& lane, Bytes requested) noexcept;
  Step next_searching(Lane& lane, Bytes requested) noexcept;
  void outgrow(Lane& lane) noexcept;
  void start_aligning(Lane& lane) noexcept;
  Step next_resting(Lane& lane, Bytes requested) noexcept;
  void guess(Lane& lane, Bytes requested) noexcept;
  void rest(Lane& lane, std::uint32_t run_needed) noexcept;
  // The lane's next request is the one at `place`, to which it walks. A place of another path, or
  // beyond the end of its own, is none: then the lane jumps to the first request of its path.
  void expect(Lane& lane, PathPlace place) noexcept;
  void set_next(Lane& lane, std::uint32_t index) noexcept;
  static void count_requests(Lane& lane) noexcept;
  [[nodiscard]] static std::optional<std::uint32_t> nearest_mark(const Path& path,
                                                                 std::uint32_t next,
                                                                 std::uint64_t came,
                                                                 bool known) noexcept;
  [[nodiscard]] bool is_on_path(const Lane& lane, PathPlace place) const noexcept {
    return place.sequence == lane.sequence && place.index < path(lane).size();
  }
  void pass_run_end(Lane& lane, Bytes requested) noexcept;
  void pass_step_end(Lane& lane) noexcept;
  void pass_root_end(Lane& lane) noexcept;
  void begin_again(Lane& lane, PathPlace place) noexcept;
  bool take_branch(Lane& lane, Bytes requested) noexcept;
  void choose_start(Lane& lane, Bytes requested) noexcept;
  // Whether a step that makes the requests of two paths is taken to be on `a`: on the one that has
  // more room for what is off schedule; else on the one whose blocks live longer; else on the
  // first.
  [[nodiscard]] bool prefers(std::uint32_t a, std::uint32_t b) const noexcept;
  [[nodiscard]] Bytes in_the_way(std::uint32_t sequence) const noexcept;
  [[nodiscard]] bool wraps(SlotIndex slot) const noexcept;
  [[nodiscard]] bool branches() const noexcept { return paths_.paths.size() > paths_.roots.size(); }
  // Calls visit(sequence) for the other paths of the lane that would make this request after the
  // same `index` ones.
  template <class Visit>
  void for_each_way(const Lane& lane, std::uint32_t index, Bytes requested,
                    Visit&& visit) const noexcept {
    paths_.order.for_each_alike(lane.sequence, index, [&](std::uint32_t sequence) {
      const Path& way = paths_.paths[sequence];
      if (index < way.size() && entries_[way.slot(index)].requested == requested) visit(sequence);
      return false;
    });
  }
  [[nodiscard]] bool in_bucket(SlotIndex slot, Bytes requested) const noexcept {
    return lookup_->is_bucket(slot) && requested <= entries_[slot].requested;
  }
  // Whether a bucket's steps asked for less here and for more.
  [[nodiscard]] bool is_between(SlotIndex slot, Bytes requested) const noexcept {
    return in_bucket(slot, requested) && requested >= lookup_->slot(slot).least;
  }
  bool is_next_bucket(Lane& lane, Bytes requested) noexcept;
  bool take_bucket(Lane& lane, Bytes requested) noexcept;
  void jump(Lane& lane, PathPlace place) noexcept;
  void expire_ancestors(Lane& lane) noexcept;

  static constexpr std::size_t kMostLeft = 1024;  // blocks that a step's start looks at

  Occupancy& occupancy_;
  const PlanLookup* lookup_ = nullptr;
  const PlanLookup::Entry* entries_ = nullptr;
  Paths paths_;
  std::uint64_t step_ends_ = 0, jumps_ = 0;
  std::optional<Surprise> first_surprise_;
};

}  // namespace berth
