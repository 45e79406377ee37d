#include "csrc/runtime/lanes.h"

namespace berth {

Lanes::Lanes(const PlanLookup& lookup) {
  const Plan& plan = lookup.plan();
  for (std::uint32_t i = 0; i < plan.lane_keys.size(); ++i) {
    lanes_.push_back(std::make_unique<Lane>());
    lanes_.back()->key = plan.lane_keys[i];
    lanes_.back()->plan_lane = i;
    by_key_.emplace(plan.lane_keys[i], lanes_.back().get());
  }
}

void Lanes::serve_to(Lane& lane, LaneKey key) {
  const LaneKey before = lane.key;
  const std::uint32_t plan_lane = lane.plan_lane;
  by_key_.emplace(key, &lane);
  by_key_.erase(before);
  lane = Lane{};
  lane.key = key;
  lane.plan_lane = plan_lane;
}

}  // namespace berth
