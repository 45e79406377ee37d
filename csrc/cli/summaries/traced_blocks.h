#pragma once

#include "csrc/trace/trace.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace berth::cli {

// Who was running on a thread when it asked: names by their number in the trace, 0 for none.
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
  Bytes requested = 0, bytes = 0;  // as asked; rounded to the trace's alignment
  trace::LaneId lane = 0;
  trace::Tick born = 0, freed = kNever;
  trace::RoleKind role = trace::RoleKind::kUnknown;
  Origin origin;
};

// Every block that a trace requests, in their order, and the largest sum of live bytes. A block's
// operator is the innermost one that was running and does more than allocate; its phase is the open
// phase range, else forward or backward as its operator is. One pass over the entries.
class TracedBlocks {
 public:
  explicit TracedBlocks(const Trace& trace);

  [[nodiscard]] const std::vector<TracedBlock>& blocks() const noexcept { return blocks_; }
  [[nodiscard]] Bytes peak() const noexcept { return peak_; }
  [[nodiscard]] trace::Tick peak_tick() const noexcept { return peak_tick_; }
  [[nodiscard]] std::size_t peak_step() const noexcept { return peak_step_; }  // marks before it
  [[nodiscard]] std::size_t frees() const noexcept { return frees_; }
  [[nodiscard]] std::size_t marks() const noexcept { return marks_; }
  [[nodiscard]] std::size_t threads() const noexcept { return threads_; }

 private:
  friend class TraceWalk;

  std::vector<TracedBlock> blocks_;
  Bytes peak_ = 0;
  trace::Tick peak_tick_ = 0;
  std::size_t peak_step_ = 0, frees_ = 0, marks_ = 0, threads_ = 0;
};

}  // namespace berth::cli
