#pragma once

#include "csrc/core/bytes.h"
#include "csrc/trace/traced_run.h"

#include <cstdint>
#include <limits>
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
// autograd call operators and are none themselves. `ns` is on the device where that is known.
struct Unit : TracedOperator {
  bool collective = false;
  bool only_allocates = false;       // makes room for another to fill
  bool gives = false;                // has results, in blocks that are known
  bool gives_new = false;            // one of them is none of its arguments'
  UnitIndex forward_unit = kNoUnit;  // whose gradient it takes
  std::vector<Touch> touches = {};   // by block, each once
  std::vector<trace::Alternative> alternatives = {};
};

struct Units {
  std::vector<Unit> units;         // by first tick
  std::vector<UnitIndex> unit_of;  // by operator of the run
};

// The units of a run that was recorded with operators; none where it was not. Units of one thread
// do not overlap. Throws Error(kInput) for an operator that begins twice. O(entries log entries).
[[nodiscard]] Units find_units(const Trace& trace, const TracedRun& run);

}  // namespace berth::graph
