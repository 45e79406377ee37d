#pragma once

#include "csrc/core/bytes.h"
#include "csrc/trace/trace.h"

#include <cstdint>
#include <string>
#include <vector>

namespace berth::cli {

// Who holds the peak of a run: all that lives at it, weights and all else that outlives steps as
// well, by module, operator and role.
//
// Blocks have the origins of TracedRun. Numbers in a module's name are one: all layers are
// "layers.*".
struct PeakHolders {
  struct Holder {
    std::string module, op, role;  // empty: not known, or summed over
    Bytes bytes = 0;
    std::uint64_t blocks = 0;
  };
  Bytes peak = 0;  // rounded to the trace's alignment
  trace::Tick tick = 0;
  std::vector<Holder> holders = {};  // by all three, largest first
  std::vector<Holder> by_module = {}, by_operator = {}, by_role = {};  // summed, largest first
};

// O(entries).
[[nodiscard]] PeakHolders find_peak_holders(const Trace& trace);

}  // namespace berth::cli
