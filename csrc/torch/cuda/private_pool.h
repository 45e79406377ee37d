#pragma once

#include "csrc/cuda/cuda_device.h"
#include "csrc/device/page_store.h"
#include "csrc/runtime/allocator.h"
#include "csrc/torch/cuda/reports.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <memory>

namespace berth::torch {

// Memory of one GPU with an allocator of its own: the main one, with the plan, has the id {0, 0};
// others are what CUDA graphs and torch.cuda.MemPool ask for, and never touch the plan's arena.
//
// Its allocator shares the GPU's lock. The main one's memory is the device's pages. Any other's
// comes in segments that never move, as PyTorch's own do, since other libraries register them and
// name them to other processes: one cudaMalloc each, or, in a pool with a source, that allocator's
// (ncclMemAlloc and the like). They count as the GPU's all the same. One of whole segments
// (MemPool's no_split) has one block in each.
class PrivatePool {
 public:
  using Source = std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator>;

  // The main one.
  PrivatePool(PageStore& device, Allocator::Options options, Reports& reports);
  // Any other; `gpu` is the device below `device`, and the options have the GPU's lock.
  PrivatePool(c10::MempoolId_t pool_id, PageStore& device, CudaDevice& gpu,
              Allocator::Options options, Reports& reports, Source source = nullptr,
              bool whole_segments = false);

  // Whether the calling thread is in a call of a user's allocator: what that asks for is not the
  // pool's which it serves.
  [[nodiscard]] static bool inside_source_of_any() noexcept;

  [[nodiscard]] Allocator& allocator() noexcept { return allocator_; }
  [[nodiscard]] const Allocator& allocator() const noexcept { return allocator_; }
  // Whether its memory is pages of one range, mapped and given back one by one.
  [[nodiscard]] bool maps_pages() const noexcept {
    return segments_ == nullptr && device_.properties().maps_pages;
  }

  const c10::MempoolId_t id;
  const Source source;
  const bool whole_segments;
  std::atomic<int> uses{1};
  std::atomic<bool> use_on_oom{false};
  std::atomic<bool> has_users{false};  // a block was used on another stream than its own, ever
  std::atomic<bool> captured{false};   // a graph has blocks of it, and comes back to them unasked

 private:
  PrivatePool(c10::MempoolId_t pool_id, PageStore& device, std::unique_ptr<Device> segments,
              Allocator::Options options, Reports& reports, Source source, bool whole_segments);

  PoolListener listener_;
  const Device& device_;
  const std::unique_ptr<Device> segments_;  // null: the device's pages
  Allocator allocator_;
};

}  // namespace berth::torch
