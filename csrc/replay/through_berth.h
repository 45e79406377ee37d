#pragma once

#include "csrc/plan/plan.h"
#include "csrc/replay/layout.h"
#include "csrc/replay/paper_device.h"
#include "csrc/replay/result.h"
#include "csrc/replay/workload.h"

#include <optional>

namespace berth::replay {

struct BerthOptions {
  bool planned = true;     // learn in place, as a user would have it; else all goes to the pool
  bool steps = false;      // fill Result::steps
  Bytes memory_limit = 0;  // 0: more than the run can need
  Bytes handle = 0;        // Config::handle
  PaperMemory memory = PaperMemory::kVirtual;
  // Plan beside the run, as in training, where steps are long: a plan serves from the end of the
  // step after the one that began it, and the replay waits for it in between. Else it serves at
  // once.
  bool background = false;
  // Served from the start, instead of what would be learned.
  std::optional<Plan> plan = {};
  Layout* layout = nullptr;  // filled where given, and requests are then slower
};

// Replays a workload on berth's allocator over a stand-in host device, whose memory is never
// touched. A replay is the same every time but for the clock. Throws Error(kSystem) where no
// address range can be had, Error(kInput) for a plan that is not legal or of another alignment.
[[nodiscard]] Result through_berth(const Workload& workload, const BerthOptions& options);

// What "berth, learning in place" is of a run, wherever it is told: with plans made beside the
// steps, as in training. Fills Result::steps.
[[nodiscard]] Result learn_in_place(const Workload& workload, Layout* layout = nullptr);

}  // namespace berth::replay
