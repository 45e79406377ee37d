#pragma once

#include "csrc/place/problem/conflicts.h"
#include "csrc/place/problem/time_index.h"

#include <cstdint>
#include <vector>

namespace berth::place {

// Some of a problem's buffers, by lane and time: finds those that conflict with a buffer, within
// its group of lanes (those of other groups all do).
//
// A query costs what TimeIndex costs in each lane of the group; where there are branches, the other
// lanes are gone through one by one.
class ConflictIndex {
 public:
  explicit ConflictIndex(const Conflicts& conflicts);

  void add(Index i) { lanes_[conflicts_.problem().buffers[i].lane].add(i); }
  void clear() noexcept {
    for (TimeIndex& lane : lanes_) lane.clear();
  }

  // Calls `visit` with the added buffers of i's group that conflict with it, each at most four
  // times.
  template <class Visit>
  void for_each(Index i, Visit&& visit) const {
    const std::uint32_t own = conflicts_.problem().buffers[i].lane;
    const auto filtered = [&](Index j) {
      if (conflicts_.conflict(i, j)) visit(j);
    };
    if (conflicts_.has_branches()) {
      lanes_[own].for_each_near(i, filtered);
    } else {
      lanes_[own].for_each_near(i, visit);
    }
    for (const std::uint32_t lane : lanes_of_group_[conflicts_.lanes().group(own)]) {
      if (lane == own) continue;
      if (conflicts_.has_branches()) {
        lanes_[lane].for_each(filtered);
        continue;
      }
      const Conflicts::Shadow shadow = conflicts_.shadow(i, lane);
      const std::uint64_t period = conflicts_.problem().lanes[lane].period;
      const std::uint64_t end = shadow.birth + shadow.length;
      lanes_[lane].for_each_in(shadow.birth, end, filtered);
      if (period != 0 && end > period) lanes_[lane].for_each_in(0, end - period, filtered);
    }
  }

 private:
  const Conflicts& conflicts_;
  std::vector<TimeIndex> lanes_;
  std::vector<std::vector<std::uint32_t>> lanes_of_group_;
};

}  // namespace berth::place
