#pragma once

#include "csrc/core/bytes.h"
#include "csrc/trace/trace.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

namespace berth::graph {

using UnitIndex = std::uint32_t;
inline constexpr UnitIndex kNoUnit = std::numeric_limits<UnitIndex>::max();

// A block as one unit uses it: all operands of all its operators in one.
struct Touch {
  trace::BlockId block = 0;
  bool reads = false;  // sees the content that was there
  bool writes = false;
  bool covers = false;        // one of its writes leaves nothing of what was there
  bool aside = false;         // as state that no result depends on: running statistics of a norm
  Bytes offset = 0, end = 0;  // what it reaches of the block, half-open
};

// What a program runs as one: an operator that no other calls, with all that it calls. Nodes of
// autograd call operators and are none themselves.
struct Unit {
  trace::StringId name = 0;
  trace::ThreadId thread = 0;
  trace::Tick first_tick = 0, last_tick = 0;  // of its begin and its end
  std::uint64_t ns = 0;                       // on the device where that is known, else on the host
  bool backward = false;
  bool random = false;
  bool host_sync = false;
  bool collective = false;
  bool in_optimizer = false;    // within a range that an optimizer made around its step
  bool only_allocates = false;  // makes room for another to fill
  bool gives = false;           // has results, in blocks that are known
  bool gives_new = false;       // one of them is none of its arguments'
  UnitIndex forward = kNoUnit;  // whose gradient it takes
  std::vector<Touch> touches;   // by block, each once
  std::vector<trace::Choice> choices;
};

// One request and all that happens to its block.
struct BlockLife {
  static constexpr trace::Tick kNever = std::numeric_limits<trace::Tick>::max();
  Bytes bytes = 0;  // rounded; of a block made before the recording, what operands reach of it
  std::optional<trace::Tick> born;  // nothing: before the recording
  trace::Tick freed = kNever;
  trace::LaneId lane = 0;
  trace::ThreadId thread = 0;
  trace::RoleKind role = trace::RoleKind::kUnknown;  // the last that was recorded
  UnitIndex requested_in = kNoUnit;
  trace::StringId around = 0;  // the innermost operator where it was requested, 0: none
  bool backward = false;       // that is one of a backward pass
};

struct Units {
  std::vector<Unit> units;  // by first tick
  std::unordered_map<trace::BlockId, BlockLife> blocks;
};

// The units of a whole trace that was recorded with operators; none where it was not. Units of one
// thread do not overlap. An operator whose end is missing ends with the one around it, at the
// latest at its thread's next mark. Throws Error(kInput) for an operator that begins twice.
// O(entries log entries).
[[nodiscard]] Units find_units(const Trace& trace);

}  // namespace berth::graph
