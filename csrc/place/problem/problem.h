#pragma once

#include <berth/place.h>

#include <cstdint>

namespace berth::place {

// Index of a buffer in its problem.
using Index = std::uint32_t;

// The buffer's size and alignment with the problem's alignment applied.
[[nodiscard]] constexpr Bytes unit_of(const Problem& problem, const Buffer& buffer) noexcept {
  return buffer.alignment > problem.alignment ? buffer.alignment : problem.alignment;
}

// Ticks of a period of the path that `buffer` is on; 0 on a line.
[[nodiscard]] inline std::uint64_t period_of(const Problem& problem,
                                             const Buffer& buffer) noexcept {
  const std::uint64_t lane = problem.lanes[buffer.lane].period;
  const std::uint64_t branch = problem.branches[buffer.branch].period;
  return lane == 0 || branch == 0 ? lane : branch;
}

// Throws Error(kUsage), naming lane, edge, branch or buffer, for what is no legal problem: all but
// edges that contradict each other (LaneOrder) and pins that collide (place). Linear.
void check_problem(const Problem& problem);

// The same for the options that go with it.
void check_options(const Problem& problem, const PlaceOptions& options);

}  // namespace berth::place
