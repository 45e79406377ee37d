#include "csrc/torch/cuda/uncached_blocks.h"

#include "csrc/facts/rounding.h"

#include <new>

namespace berth::torch {

Status UncachedBlocks::allocate(Bytes size, void** block) {
  const std::lock_guard lock(mutex_);
  const Bytes rounded = align_up(size, facts::kCudaUnit);
  if (const Status status = device_.allocate_segment(rounded, block); !status.ok()) return status;
  try {
    blocks_.emplace(*block, rounded);
  } catch (const std::bad_alloc&) {
    (void)device_.free_segment(*block, rounded);
    throw;
  }
  addresses_.note(*block, rounded, device_.index());
  count_.fetch_add(1);
  return {};
}

bool UncachedBlocks::free(void* block) noexcept {
  if (count_.load() == 0) return false;
  const std::lock_guard lock(mutex_);
  const auto it = blocks_.find(block);
  if (it == blocks_.end()) return false;
  (void)device_.free_segment(block, it->second);
  blocks_.erase(it);
  count_.fetch_sub(1);
  return true;
}

}  // namespace berth::torch
