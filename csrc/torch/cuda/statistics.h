#pragma once

#include "csrc/runtime/allocator.h"

#include <c10/cuda/CUDACachingAllocator.h>

namespace berth::torch {

// The counters behind torch.cuda.memory_stats() of one GPU, exact at any time. Not thread-safe: the
// GPU's lock covers them.
//
// Blocks count as small up to 1 MiB, as PyTorch's do; memory that is reserved is not divided, and
// counts as large. Segments are those of the snapshot: stretches of memory without a gap, not calls
// of the driver. "Inactive" is what is reserved and in no block.
class Statistics {
 public:
  void served(const BlockListener::Block& block) noexcept;
  void freed(const BlockListener::Block& block, bool waiting) noexcept;
  void completed(const BlockListener::Block& block) noexcept;
  // `pool`: of a private one, else {0, 0}.
  void reserved(c10::MempoolId_t pool, Bytes size) noexcept;
  void releasing(c10::MempoolId_t pool, Bytes size) noexcept;
  // There are so many segments more, or less.
  void count_segments(int more) noexcept;
  void retried() noexcept { ++stats_.num_alloc_retries; }
  // `refused`: the driver was not asked.
  void exhausted(bool refused) noexcept;
  void synchronized() noexcept { ++stats_.num_sync_all_streams; }

  // `holes`: how many there are now.
  [[nodiscard]] c10::CachingDeviceAllocator::DeviceStats get(std::uint64_t holes) noexcept;
  [[nodiscard]] Bytes allocated() const noexcept;
  [[nodiscard]] Bytes reserved() const noexcept;
  void reset_accumulated() noexcept;
  void reset_peak() noexcept;

 private:
  c10::CachingDeviceAllocator::DeviceStats stats_;
};

}  // namespace berth::torch
