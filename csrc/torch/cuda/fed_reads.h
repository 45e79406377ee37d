#pragma once

namespace berth::torch {

class CudaAllocator;

// On the stand-in runtime, where it feeds the host's reads of what kernels would have computed
// (BERTH_STANDIN_VALUES): tells it which blocks are handed out anew, and which type of element an
// operator is about to read. Elsewhere it does nothing. Once, for the life of the process.
void tell_reads(CudaAllocator& allocator);

}  // namespace berth::torch
