#pragma once

#include "csrc/trace/trace.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace berth {

// What requested a block: names by their number in the trace, 0 for none.
struct Origin {
  enum class Phase : std::uint8_t { kUnknown, kNamed, kForward, kBackward };
  trace::StringId module = 0, op = 0, phase_name = 0, scope = 0;
  Phase phase = Phase::kUnknown;
};

// "forward", "backward", the phase's own name; empty where not known.
[[nodiscard]] std::string phase_name(const Trace& trace, const Origin& origin);

struct TracedBlock {
  static constexpr trace::Tick kNever = std::numeric_limits<trace::Tick>::max();
  trace::BlockId id = 0;
  Bytes requested = 0, bytes = 0;  // as requested; rounded
  trace::LaneId lane = 0;
  trace::Tick born = 0, freed = kNever;
  trace::RoleKind role = trace::RoleKind::kUnknown;
  Origin origin;

  [[nodiscard]] bool lives_at(trace::Tick tick) const noexcept {
    return born <= tick && freed > tick;
  }
};

// Every block that a trace requests, in their order, with its origin, and the largest sum of live
// bytes.
//
// A block's module is the one that was running on the thread of the request; of a backward
// operator's block, the module whose forward made that node of autograd; where none was running,
// the first one that used the block, as for weights and the optimizer's state. Its operator is the
// innermost one that does more than allocate. Its phase is the open phase range, else forward or
// backward as its operator is. Its scope is the innermost range of the user.
//
// Ranges and operators may end out of turn. One pass over the entries, in O(entries).
class TracedBlocks {
 public:
  // Sizes are rounded to `unit`; 0: to the trace's alignment.
  explicit TracedBlocks(const Trace& trace, Bytes unit = 0);

  [[nodiscard]] const std::vector<TracedBlock>& blocks() const noexcept { return blocks_; }
  [[nodiscard]] Bytes peak() const noexcept { return peak_; }
  // Of the first request that reaches it.
  [[nodiscard]] trace::Tick peak_tick() const noexcept { return peak_tick_; }
  [[nodiscard]] std::size_t peak_step() const noexcept { return peak_step_; }  // marks before it
  [[nodiscard]] std::size_t frees() const noexcept { return frees_; }
  [[nodiscard]] std::size_t marks() const noexcept { return marks_; }
  [[nodiscard]] std::size_t threads() const noexcept { return threads_; }

 private:
  friend class BlockWalk;

  std::vector<TracedBlock> blocks_;
  Bytes peak_ = 0;
  trace::Tick peak_tick_ = 0;
  std::size_t peak_step_ = 0, frees_ = 0, marks_ = 0, threads_ = 0;
};

}  // namespace berth
