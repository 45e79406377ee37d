#pragma once

#include "csrc/trace/trace.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
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

// By the order of their begins.
using OperatorIndex = std::uint32_t;
inline constexpr OperatorIndex kNoOperator = std::numeric_limits<OperatorIndex>::max();

struct TracedOperator {
  std::uint64_t id = 0;
  trace::StringId name = 0;
  trace::ThreadId thread = 0;
  trace::Tick first_tick = 0, last_tick = 0;  // of its begin and its end
  std::uint64_t begin_ns = 0, ns = 0;         // on the host
  std::optional<std::uint64_t> device_ns;
  OperatorIndex parent = kNoOperator;   // that called it
  OperatorIndex forward = kNoOperator;  // whose gradient it takes
  trace::StringId module = 0;           // that was running when it began
  bool backward = false, random = false;
  bool in_optimizer = false;  // within a range that an optimizer made around its step
  bool host_sync = false;     // the host waited in it, or bytes were copied to it
};

// An entry of an operator that has begun: an Operand or a Alternative of the trace.
template <class Entry>
struct OfOperator {
  const Entry* entry = nullptr;
  OperatorIndex op = kNoOperator;
  trace::Tick tick = 0;
};

struct TracedBlock {
  static constexpr trace::Tick kNever = std::numeric_limits<trace::Tick>::max();
  trace::BlockId id = 0;
  bool before = false;             // requested before the recording
  Bytes requested = 0, bytes = 0;  // as requested; rounded
  trace::LaneId lane = 0;
  trace::Tick birth = 0, end = kNever;
  Bytes live = 0;  // bytes of all blocks when it was born, its own among them
  trace::RoleKind role = trace::RoleKind::kUnknown;
  OperatorIndex op = kNoOperator;  // the innermost one that was running at the request
  Origin origin;

  [[nodiscard]] bool lives_at(trace::Tick tick) const noexcept {
    return birth <= tick && end > tick;
  }
};

// Every block and every operator of a trace in their order, with what requested and called them,
// and the largest sum of live bytes.
//
// A block's module is the one that was running on the thread of the request; of a backward
// operator's block, the module whose forward made that node of autograd; where none was running,
// the first one that used the block, as for weights and the optimizer's state. Its operator is the
// innermost one that does more than allocate. Its phase is the open phase range, else forward or
// backward as its operator is. Its scope is the innermost range of the user.
//
// An operator whose end is missing ends with the one around it, at the latest at its thread's next
// mark. Numbers of autograd inside a backward operator count other nodes: it follows the one around
// it. Ranges may end out of turn. One pass over the entries, in O(entries). The trace outlives it.
class TracedRun {
 public:
  // Sizes are rounded to `unit`; 0: to the trace's alignment.
  explicit TracedRun(const Trace& trace, Bytes unit = 0);

  // Blocks whose request is in the trace.
  [[nodiscard]] const std::vector<TracedBlock>& blocks() const noexcept { return blocks_; }
  // Blocks from before the recording: `bytes` is what operands reach of them.
  [[nodiscard]] const std::unordered_map<trace::BlockId, TracedBlock>& before() const noexcept {
    return before_;
  }
  // A block of either. Requires: an operand, a role or a free of the trace names it.
  [[nodiscard]] const TracedBlock& block(trace::BlockId id) const;
  [[nodiscard]] const std::vector<TracedOperator>& operators() const noexcept { return operators_; }
  [[nodiscard]] const std::vector<OfOperator<trace::Operand>>& operands() const noexcept {
    return operands_;
  }
  [[nodiscard]] const std::vector<OfOperator<trace::Alternative>>& alternatives() const noexcept {
    return alternatives_;
  }
  [[nodiscard]] Bytes peak() const noexcept { return peak_; }
  // The largest sum of live bytes from one tick to another. O(blocks).
  [[nodiscard]] Bytes peak_between(trace::Tick first, trace::Tick last) const noexcept;
  // Of the first request that reaches it.
  [[nodiscard]] trace::Tick peak_tick() const noexcept { return peak_tick_; }
  [[nodiscard]] std::size_t peak_step() const noexcept { return peak_step_; }  // marks before it
  [[nodiscard]] std::size_t frees() const noexcept { return frees_; }
  [[nodiscard]] std::size_t marks() const noexcept { return marks_; }
  [[nodiscard]] std::size_t threads() const noexcept { return threads_; }

 private:
  friend class RunWalk;

  std::vector<TracedBlock> blocks_;
  std::unordered_map<trace::BlockId, TracedBlock> before_;
  std::unordered_map<trace::BlockId, std::size_t> index_;  // into blocks_
  std::vector<TracedOperator> operators_;
  std::vector<OfOperator<trace::Operand>> operands_;
  std::vector<OfOperator<trace::Alternative>> alternatives_;
  Bytes peak_ = 0;
  trace::Tick peak_tick_ = 0;
  std::size_t peak_step_ = 0, frees_ = 0, marks_ = 0, threads_ = 0;
};

// What an operator that ends at `end` needs at most, beside what outlives it, of the blocks that
// were requested in it.
[[nodiscard]] Bytes workspace_of(const std::vector<const TracedBlock*>& requested, trace::Tick end);

}  // namespace berth
