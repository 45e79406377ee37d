#include "csrc/runtime/guards.h"

#include <algorithm>
#include <limits>
#include <new>
#include <vector>

namespace berth {

Guards::Lane& Guards::lane_of(LaneKey key) {
  if (const auto known = by_key_.find(key); known != by_key_.end()) return *known->second;
  Lane& lane = lanes_.emplace_back();
  lane.key = key;
  lane.place = std::prev(lanes_.end());
  try {
    by_key_.emplace(key, &lane);
  } catch (const std::bad_alloc&) {
    lanes_.pop_back();
    throw;
  }
  return lane;
}

void Guards::drop(Guard& guard) noexcept {
  tree_.erase(guard);
  if (guard.binds == Binds::kAll) --binding_all_;
  std::list<Guard>& guards = by_key_.find(guard.point.lane)->second->guards;
  guards.erase(guard.place);
}

void Guards::forget_where_empty(Lane& lane) noexcept {
  if (!lane.guards.empty()) return;
  by_key_.erase(lane.key);
  lanes_.erase(lane.place);
}

bool Guards::add(ByteRange bytes, LaneKey source, Binds binds) noexcept {
  LaneEvents::Point point;
  if (events_.record(source, &point) != LaneEvents::Recorded::kYes) return false;
  if (point.number == 0) return true;
  try {
    Lane& lane = lane_of(source);
    try {
      put(lane, bytes, point, binds);
    } catch (const std::bad_alloc&) {
      forget_where_empty(lane);
      throw;
    }
  } catch (const std::bad_alloc&) {
    return false;  // as if there had been no event: only a synchronisation helps
  }
  return true;
}

void Guards::put(Lane& lane, ByteRange bytes, LaneEvents::Point point, Binds binds) {
  if (lane.guards.size() >= kMostALane) {
    for (const Guard& guard : lane.guards) {
      bytes.first = std::min(bytes.first, guard.bytes.first);
      bytes.last = std::max(bytes.last, guard.bytes.last);
    }
    binds = Binds::kAll;
  }
  // The new point covers the earlier ones.
  std::vector<Guard*> covered;
  tree_.visit_touching(bytes, [&](RangeNode& node) {
    auto& guard = static_cast<Guard&>(node);
    // mutant: guards-overlap
    if (guard.point.lane == lane.key && guard.bytes.first >= bytes.first &&
        guard.bytes.last <= bytes.last && (binds == Binds::kAll || guard.binds == binds))
      covered.push_back(&guard);
    return true;
  });
  Guard& guard = lane.guards.emplace_back(bytes, point, binds);
  guard.place = std::prev(lane.guards.end());
  tree_.insert(guard);
  if (binds == Binds::kAll) ++binding_all_;
  // mutant: s1-early
  for (Guard* const earlier : covered) drop(*earlier);
}

bool Guards::wait(LaneKey lane, ByteRange bytes, Binds binds) noexcept {
  // Of each lane only the last point counts.
  std::vector<LaneEvents::Point> last;
  try {
    tree_.visit_touching(bytes, [&](const RangeNode& node) {
      const auto& guard = static_cast<const Guard&>(node);
      // mutant: s4-wait
      if (binds == Binds::kAll && guard.binds != Binds::kAll) return true;
      if (events_.ordered(lane, guard.point)) return true;
      const auto known = std::find_if(last.begin(), last.end(), [&](LaneEvents::Point point) {
        return point.lane == guard.point.lane;
      });
      if (known == last.end()) {
        last.push_back(guard.point);
      } else {
        known->number = std::max(known->number, guard.point.number);
      }
      return true;
    });
  } catch (const std::bad_alloc&) {
    return false;
  }
  return std::all_of(last.begin(), last.end(),
                     [&](LaneEvents::Point point) { return events_.wait(lane, point); });
}

void Guards::let_go(Lane& lane, std::size_t most) noexcept {
  for (; most > 0 && !lane.guards.empty(); --most) {
    Guard& oldest = lane.guards.front();
    // mutant: s7-guard
    if (!events_.reached(oldest.point)) break;
    drop(oldest);
  }
}

void Guards::let_go_of_some() noexcept {
  constexpr std::size_t kLanes = 4, kOfEach = 16;
  for (std::size_t i = std::min(kLanes, lanes_.size()); i > 0; --i) {
    Lane& lane = lanes_.front();
    let_go(lane, kOfEach);
    lanes_.splice(lanes_.end(), lanes_, lanes_.begin());
    forget_where_empty(lane);
  }
}

void Guards::let_go() noexcept {
  for (auto lane = lanes_.begin(); lane != lanes_.end();) {
    let_go(*lane, std::numeric_limits<std::size_t>::max());
    Lane& done = *lane++;
    forget_where_empty(done);
  }
}

}  // namespace berth
