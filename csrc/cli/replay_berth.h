#pragma once

#include "csrc/cli/replay_result.h"
#include "csrc/cli/workload.h"

namespace berth::cli {

struct ReplayBerthOptions {
  bool planned = true;     // learn in place, as a user would have it; else all goes to the pool
  bool steps = false;      // fill ReplayResult::steps
  Bytes memory_limit = 0;  // 0: more than the run can need
};

// Replays a workload on berth's allocator over a stand-in host device, whose memory is never
// touched. Planning happens at the marks, in place, so a replay is the same every time but for the
// clock. Throws Error(kSystem) where no address range can be had.
[[nodiscard]] ReplayResult replay_berth(const Workload& workload,
                                        const ReplayBerthOptions& options);

}  // namespace berth::cli
