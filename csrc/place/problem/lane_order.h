#pragma once

#include "csrc/place/problem/problem.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace berth::place {

// A point of a lane's time: before its tick `tick` in step `step` (always 0 on a line). Steps count
// from the one that is looked at.
struct Moment {
  std::uint64_t step = 0;
  std::uint64_t tick = 0;

  friend constexpr auto operator<=>(const Moment&, const Moment&) = default;
};

// What the event edges of a problem prove about the order of its lanes.
//
// Labels: for an edge e of lane A and a lane B, the earliest moment of B that has seen all that A
// did before e, over chains of edges; a fixed point, found by sweeps over the edges. Fewer labels
// than there could be (the sweeps are bounded, and so is the table) only forbid sharing.
//
// Cost: O(edges * lanes) memory and per sweep. Immutable once built.
class LaneOrder {
 public:
  static constexpr Moment kNever{~std::uint64_t{0}, ~std::uint64_t{0}};

  // Throws Error(kUsage) where edges contradict each other. Requires check_problem(problem).
  explicit LaneOrder(const Problem& problem);

  // Lanes of one group may share bytes; lanes of two groups never do.
  [[nodiscard]] std::uint32_t group(std::uint32_t lane) const noexcept { return groups_[lane]; }
  [[nodiscard]] std::uint32_t group_count() const noexcept { return group_count_; }

  // The earliest moment of lane `to` that has seen all that `from` did before `moment`, or kNever.
  [[nodiscard]] Moment seen(std::uint32_t from, Moment moment, std::uint32_t to) const noexcept;

  // The latest tick of lane `of`, `steps` periods back, that lane `by` has seen all before at its
  // own tick; nothing where there is none.
  [[nodiscard]] std::optional<std::uint64_t> known(std::uint32_t of, std::uint64_t steps,
                                                   std::uint32_t by,
                                                   std::uint64_t tick) const noexcept;

 private:
  struct Edge {
    std::uint64_t from_tick, to_tick;
    std::uint32_t to_lane;
    std::uint32_t delta;
  };

  void keep_common_prefix_edges(const Problem& problem);
  void propagate();
  void make_groups();
  [[nodiscard]] std::size_t first_edge_from(std::uint32_t lane, std::uint64_t tick) const noexcept;
  [[nodiscard]] Moment& label(std::size_t edge, std::uint32_t lane) noexcept {
    return labels_[edge * joined_count_ + joined_[lane]];
  }
  [[nodiscard]] const Moment& label(std::size_t edge, std::uint32_t lane) const noexcept {
    return labels_[edge * joined_count_ + joined_[lane]];
  }

  std::vector<std::uint64_t> periods_;
  std::vector<Edge> edges_;               // by lane, then from_tick
  std::vector<std::size_t> first_edges_;  // of each lane, and the end
  std::vector<std::uint32_t> joined_;     // dense number among the lanes that have edges
  std::size_t joined_count_ = 0;
  std::vector<Moment> labels_;  // edge x joined lane
  std::vector<std::uint32_t> groups_;
  std::uint32_t group_count_ = 0;
};

}  // namespace berth::place
