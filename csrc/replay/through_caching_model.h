#pragma once

#include "csrc/replay/caching_model.h"
#include "csrc/replay/result.h"
#include "csrc/replay/workload.h"

#include <functional>
#include <string>
#include <vector>

namespace berth::replay {

// The models of PyTorch's CUDA allocators by the names that `replay` has for them:
// "caching-model" and "expandable-model".
[[nodiscard]] const std::vector<std::string>& model_allocators();

// Replays requests and frees under the model of PyTorch's caching allocator, lanes as streams, in
// this process and without libtorch. Result::steps is always filled; hits and misses are not
// known. A request that the limit refuses ends it (Result::out_of_memory), unless
// it is a convolution's workspace.
//
// `seen`, where given, is called after each operation with its index and the model.
[[nodiscard]] Result through_caching_model(
    const Workload& workload, const CachingModel::Options& options,
    const std::function<void(std::size_t, const CachingModel&)>& seen = {});

// The same on a device of `limit` bytes; 0: more than the run can need.
[[nodiscard]] Result through_caching_model(const Workload& workload, bool expandable,
                                           Bytes limit = 0);

}  // namespace berth::replay
