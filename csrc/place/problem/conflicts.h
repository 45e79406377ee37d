#pragma once

#include "csrc/core/bytes.h"
#include "csrc/place/problem/lane_order.h"
#include "csrc/place/problem/problem.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace berth::place {

// The ticks that a buffer lives for. On its own path and step [birth, end), where `end` may lie
// behind the period; what wraps around lives over [0, wrapped) of the next step, on every path.
struct Lifetime {
  std::uint64_t birth = 0;
  std::uint64_t end = 0;
  std::uint64_t wrapped = 0;  // 0: nothing
};

// Which buffers of a problem can be alive together, exactly: arcs, branches, and lanes with the
// order that edges prove. Immutable once built; refers to the problem.
class Conflicts {
 public:
  // Throws Error(kUsage) for an illegal problem, pins that collide excepted.
  explicit Conflicts(const Problem& problem);

  [[nodiscard]] const Problem& problem() const noexcept { return problem_; }
  [[nodiscard]] const LaneOrder& lanes() const noexcept { return lanes_; }
  [[nodiscard]] std::size_t size() const noexcept { return lifetimes_.size(); }
  [[nodiscard]] const Lifetime& lifetime(Index i) const noexcept { return lifetimes_[i]; }
  [[nodiscard]] Bytes bytes(Index i) const noexcept {
    return align_up(problem_.buffers[i].size, problem_.alignment);
  }
  [[nodiscard]] Bytes unit(Index i) const noexcept {
    return unit_of(problem_, problem_.buffers[i]);
  }
  [[nodiscard]] std::uint32_t group(Index i) const noexcept {
    return lanes_.group(problem_.buffers[i].lane);
  }
  // Every two buffers of a lane whose ticks intersect conflict: there is one path only.
  [[nodiscard]] bool has_branches() const noexcept { return problem_.branches.size() > 1; }

  // Whether two different buffers can be alive at one time. O(1) but for the depth of branches and
  // the logarithm of the number of edges.
  [[nodiscard]] bool conflict(Index u, Index v) const noexcept;

  // The ticks of another lane at which buffer i may be alive: a buffer of that lane conflicts with
  // i exactly where it lives at one of them (in rare cases of edges that touch, fewer do). On a
  // circle an arc. For problems without branches.
  struct Shadow {
    std::uint64_t birth = 0;
    std::uint64_t length = 0;
  };
  [[nodiscard]] Shadow shadow(Index i, std::uint32_t lane) const noexcept;

  // The moment of the buffer's end, in its own lane.
  [[nodiscard]] Moment end(Index i) const noexcept;

 private:
  [[nodiscard]] bool on_common_path(Index u, Index v) const noexcept;
  [[nodiscard]] bool conflict_in_lane(Index u, Index v) const noexcept;
  [[nodiscard]] bool conflict_across_lanes(Index u, Index v) const noexcept;
  void set_lifetimes();

  const Problem& problem_;
  LaneOrder lanes_;
  std::vector<Lifetime> lifetimes_;
};

}  // namespace berth::place
