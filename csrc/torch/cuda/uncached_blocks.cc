#include "csrc/torch/cuda/uncached_blocks.h"

#include <new>

namespace berth::torch {

void* UncachedBlocks::allocate(Bytes size, std::string* reason) {
  const std::lock_guard lock(mutex_);
  if (device_ == nullptr)
    device_ = make_cuda_device({.index = index_, .memory = CudaOptions::Memory::kPlain});
  const Bytes rounded = align_up(size, device_->properties().page_bytes);
  void* block = nullptr;
  if (const Status status = device_->reserve(rounded, alignment_, &block); !status.ok()) {
    *reason = device_->describe(status);
    return nullptr;
  }
  try {
    blocks_.emplace(block, rounded);
  } catch (const std::bad_alloc&) {
    (void)device_->release(block, rounded);
    throw;
  }
  addresses_.note(block, rounded, index_);
  count_.fetch_add(1);
  return block;
}

bool UncachedBlocks::free(void* block) noexcept {
  if (count_.load() == 0) return false;
  const std::lock_guard lock(mutex_);
  const auto it = blocks_.find(block);
  if (it == blocks_.end()) return false;
  (void)device_->release(block, it->second);
  blocks_.erase(it);
  count_.fetch_sub(1);
  return true;
}

}  // namespace berth::torch
