#pragma once

#include "csrc/replay/layout.h"
#include "csrc/replay/workload.h"

namespace berth::replay {

// Where PyTorch's CUDA caching allocator puts the blocks of a workload and what it reserves, by the
// model of it (caching_model.h): in this process, without libtorch. Lanes are streams.
[[nodiscard]] Layout torch_layout(const Workload& workload);

}  // namespace berth::replay
