#pragma once

#include "csrc/replay/result.h"
#include "csrc/replay/workload.h"

#include <string>
#include <vector>

namespace berth::replay {

// PyTorch's own CUDA allocators that `replay` compares with: "caching" and "expandable", the first
// with expandable segments.
[[nodiscard]] const std::vector<std::string>& torch_allocators();

// Replays requests and frees under one of them: the real libtorch_cuda on the stand-in runtime, in
// a child process (berth-replay-torch beside this program), lanes as streams. Reserved is its own
// count, driver calls those that bring or return memory. The device has `limit` bytes, or, where
// that is 0, more than the run can need. Where the child was not built that is a Result::problem.
// Throws Error(kSystem).
[[nodiscard]] Result through_torch(const std::string& name, const Workload& workload,
                                   Bytes limit = 0);

}  // namespace berth::replay
