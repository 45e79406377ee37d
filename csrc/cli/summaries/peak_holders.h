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
// A block belongs to the module that was running when it was asked for; of what a backward node
// asks for, to the module whose forward made the node; and where none was running (weights, the
// optimizer's state), to the first one that used it. Numbers in a module's name are one: all
// layers are "layers.*". Its operator is the innermost one that does more than allocate.
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
