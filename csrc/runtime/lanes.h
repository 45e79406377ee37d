#pragma once

#include "csrc/plan/lookup.h"
#include "csrc/runtime/lane.h"

#include <memory>
#include <unordered_map>
#include <vector>

namespace berth {

// The lanes of a plan, and the thread or stream that each is served to: the one whose requests were
// recorded, until another takes it over.
//
// Not thread-safe; movable. All is O(1).
class Lanes {
 public:
  Lanes() = default;  // of no plan
  // Throws std::bad_alloc.
  explicit Lanes(const PlanLookup& lookup);

  // The lane that is served to `key`, or null.
  [[nodiscard]] Lane* find(LaneKey key) const noexcept {
    const auto lane = by_key_.find(key);
    return lane == by_key_.end() ? nullptr : lane->second;
  }
  [[nodiscard]] const Lane& of_plan(std::uint32_t plan_lane) const noexcept {
    return *lanes_[plan_lane];
  }
  // The plan's only lane, or null where there are others, or none.
  [[nodiscard]] Lane* lone() const noexcept {
    return lanes_.size() == 1 ? lanes_.front().get() : nullptr;
  }
  // Serves a lane to another key, as if it was new. Throws std::bad_alloc, and then nothing
  // changes.
  void serve_to(Lane& lane, LaneKey key);

  [[nodiscard]] const std::unordered_map<LaneKey, Lane*>& all() const noexcept { return by_key_; }

 private:
  std::vector<std::unique_ptr<Lane>> lanes_;  // by their number in the plan
  std::unordered_map<LaneKey, Lane*> by_key_;
};

}  // namespace berth
