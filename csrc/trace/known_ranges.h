#pragma once

#include <string_view>

namespace berth::trace {

// The name of the range that stands in a trace where the program emptied the allocator's cache
// (torch.cuda.empty_cache()): PyTorch's own allocator then gives back what is free.
inline constexpr std::string_view kEmptyCacheRange = "torch.cuda.empty_cache";

// That of the ranges that stand where the program turned to a private pool (a captured graph's, or
// a torch.cuda.MemPool): what is allocated there is not in the trace.
inline constexpr std::string_view kPrivatePoolRange = "torch.cuda.MemPool";

}  // namespace berth::trace
