#pragma once

#include "csrc/trace/trace.h"

#include <cstdint>
#include <vector>

// A trace, seen from its lanes: what step extraction works on.
namespace berth::trace {

// A request of a lane. Requests for no bytes are left out: no allocator counts them.
struct LaneRequest {
  static constexpr std::uint32_t kAlive = 0xFFFFFFFF;
  static constexpr Tick kNever = ~Tick{0};

  Tick tick = 0;
  Tick freed = kNever;
  Bytes bytes = 0;
  BlockId block = 0;
  Tag tag = 0;
  std::uint32_t end = kAlive;  // requests that its lane had made when it was freed
};

struct LaneMark {
  Tick tick = 0;
  std::uint32_t position = 0;  // requests that its lane had made
};

struct LaneLog {
  std::vector<LaneRequest> requests;
  std::vector<LaneMark> marks;

  // How many requests were made before a tick. O(log n).
  [[nodiscard]] std::uint32_t position_at(Tick tick) const noexcept;
};

struct RunLog {
  std::vector<LaneLog> lanes;  // as Trace::lanes
  Tick end = 0;                // after the last entry
};

// O(entries).
[[nodiscard]] RunLog make_run_log(const Trace& trace);

}  // namespace berth::trace
