#pragma once

#include <berth/stats.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth {

// The most frequent misses of the plan that is served, in 8 KiB.
//
// Each kind of miss has one place, which it shares with others: there the majority stays (Boyer and
// Moore 1981), so that what comes often is kept whatever else comes. Counts are exact where nothing
// shared the place, and too small else. Not thread-safe: the allocator's lock covers it. O(1) a
// miss, nothing for a hit.
class MissTable {
 public:
  static constexpr std::size_t kMost = 16;

  // A miss of the plan at this address; one of another plan than before starts anew.
  void add(const Miss& miss, const void* plan) noexcept;
  // The kMost most frequent, most frequent first. Throws std::bad_alloc.
  [[nodiscard]] std::vector<Miss> most() const;

 private:
  struct Place {
    Miss miss;
    std::uint64_t votes = 0;
  };
  std::array<Place, 128> places_{};
  const void* plan_ = nullptr;
};

}  // namespace berth
