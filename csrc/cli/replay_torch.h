#pragma once

#include "csrc/cli/replay_result.h"
#include "csrc/cli/workload.h"

#include <string>
#include <vector>

namespace berth::cli {

// PyTorch's own CUDA allocators that `replay` compares with: "caching" and "expandable", the first
// with expandable segments.
[[nodiscard]] const std::vector<std::string>& torch_allocators();

// Replays requests and frees under one of them: the real libtorch_cuda on the stand-in runtime, in
// a child process (berth-replay-torch beside this program), lanes as streams. Reserved is its own
// count, driver calls those that bring or return memory. Where the child was not built that is a
// ReplayResult::problem. Throws Error(kSystem).
[[nodiscard]] ReplayResult replay_torch(const std::string& name, const Workload& workload);

}  // namespace berth::cli
