#pragma once

#include "csrc/torch/cuda/private_pool.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <memory>
#include <unordered_set>

// What PyTorch's graph trees ask of a private pool: to save which blocks live in it, and to go back
// to that.
namespace berth::torch {

// The live blocks of a pool, as torch's graph trees save them.
[[nodiscard]] std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> state_of(
    const PrivatePool& pool);
// The pool of a saved state. Throws where the state is another allocator's.
[[nodiscard]] c10::MempoolId_t pool_of(
    const c10::cuda::CUDACachingAllocator::AllocatorState& state);
// Frees what lives in the pool, and makes the blocks of the state again at their addresses. Throws
// where one cannot be made.
[[nodiscard]] c10::cuda::CUDACachingAllocator::CheckpointDelta restore(
    PrivatePool& pool, const c10::cuda::CUDACachingAllocator::AllocatorState& state,
    c10::Device device, c10::DeleterFnPtr deleter);
// Whether exactly these blocks live in the pool.
[[nodiscard]] bool blocks_are(const PrivatePool& pool, const std::unordered_set<void*>& expected);

}  // namespace berth::torch
