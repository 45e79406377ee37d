#pragma once

#include "csrc/place/dives/dive.h"
#include "csrc/place/problem/budget.h"
#include "csrc/place/problem/conflicts.h"
#include "csrc/place/problem/strip.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace berth::place {

struct PackSettings {
  Rank rank = Rank::kWAT;
  double noise = 0;  // of dives, and of the order of paths
  std::uint64_t seed = 0;
  unsigned look = 32;
  Bytes capacity = 0;  // what to aim at, where the load is lower
  Bytes below = 0;     // give up where the mark would not stay below
};

// Places one lane with dives around bytes that others take, whatever its branches.
//
// Without forks that is one dive. Else its buffers are of two kinds. What wraps around, or is alive
// when some branch leaves, is shared: it meets buffers of several branches. The rest lies in
// segments, each from one fork of a branch to the next, and no two segments conflict. So the shared
// ones are placed first, path by path, the heaviest path first, each by a dive of the whole path
// (twice: those that wrap around, then the others); then each segment by itself around them, all
// below one capacity.
//
// Immutable once built, so threads share one.
class LanePacker {
 public:
  LanePacker(const Conflicts& conflicts, std::uint32_t lane);

  // Paths that share long prefixes many times over are too much work.
  [[nodiscard]] bool within_reach() const noexcept { return within_reach_; }
  [[nodiscard]] std::span<const Index> buffers() const noexcept { return buffers_; }
  // The largest load of a path.
  [[nodiscard]] Bytes load() const noexcept { return paths_.empty() ? 0 : paths_.front().load; }

  // Offsets of the lane's buffers into `offsets`, which has one for each of the problem, around
  // `taken`: fixed arcs in the lane's ticks. False where it gave up. `budget` may be null.
  [[nodiscard]] bool pack(std::span<const Arc> taken, const PackSettings& settings,
                          const Budget* budget, std::vector<Bytes>& offsets) const;

  // What can be placed anew by itself while all else stays where it is: the strips of the segments,
  // or of the whole lane.
  [[nodiscard]] std::vector<Strip> parts(std::span<const Arc> taken,
                                         const std::vector<Bytes>& offsets) const;

 private:
  struct Path {
    std::uint32_t branch;
    std::uint64_t period;
    Bytes load;
    std::vector<Index> buffers;
  };
  struct Segment {
    std::uint32_t branch;
    std::vector<Index> buffers;
  };
  void make_path(std::uint32_t branch, const std::vector<std::vector<Index>>& of_branch);
  void make_segments(const std::vector<std::vector<Index>>& of_branch);
  [[nodiscard]] bool is_shared(Index i) const noexcept {
    return std::binary_search(shared_.begin(), shared_.end(), i);
  }
  [[nodiscard]] bool on_path(Index i, std::uint32_t branch) const noexcept;
  [[nodiscard]] std::vector<std::size_t> path_order(const PackSettings& settings) const;
  [[nodiscard]] Strip path_strip(const Path& path, std::span<const Arc> taken,
                                 const std::vector<Bytes>& offsets,
                                 const std::vector<bool>& placed) const;
  [[nodiscard]] Strip segment_strip(const Segment& segment, std::span<const Arc> taken,
                                    const std::vector<Bytes>& offsets) const;
  [[nodiscard]] Strip whole_strip(std::span<const Arc> taken) const;

  const Conflicts* conflicts_;
  std::uint64_t period_ = 0;
  bool forked_ = false;
  bool within_reach_ = true;
  std::vector<Index> buffers_;
  std::vector<Index> shared_;      // by index
  std::vector<Path> paths_;        // heaviest first
  std::vector<Segment> segments_;  // none where there are no forks
};

}  // namespace berth::place
