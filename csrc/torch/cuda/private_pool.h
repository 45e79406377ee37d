#pragma once

#include "csrc/cuda/cuda_device.h"
#include "csrc/device/forwarding_device.h"
#include "csrc/device/metered_device.h"
#include "csrc/runtime/allocator.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <memory>

namespace berth::torch {

// Who hears of one pool's blocks and memory, with the pool's id. Called under the GPU's lock.
class PoolEvents {
 public:
  virtual ~PoolEvents() = default;
  virtual void served(c10::MempoolId_t pool, const BlockListener::Block& block) noexcept = 0;
  virtual void freed(c10::MempoolId_t pool, const BlockListener::Block& block,
                     bool waiting) noexcept = 0;
  virtual void completed(c10::MempoolId_t pool, const BlockListener::Block& block) noexcept = 0;
  virtual void came(c10::MempoolId_t pool, void* base, Bytes size, bool whole) noexcept = 0;
  virtual void goes(c10::MempoolId_t pool, void* base, Bytes size, bool whole) noexcept = 0;
};

// Memory of one GPU with an allocator of its own: the main one, with the plan, has the id {0, 0};
// others are what CUDA graphs and torch.cuda.MemPool ask for, and never touch the plan's arena.
//
// Its allocator shares the GPU's lock. A pool with a source takes its memory from that allocator
// (ncclMemAlloc and the like), one segment at a time; it counts as the GPU's all the same. One of
// whole segments (MemPool's no_split) has one block in each.
class PrivatePool final : BlockListener, MeteredDevice::Watcher {
 public:
  using Source = std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator>;

  PrivatePool(c10::MempoolId_t pool_id, MeteredDevice& device, Allocator::Options options,
              PoolEvents& events, Source source = nullptr, bool whole_segments = false);

  [[nodiscard]] Allocator& allocator() noexcept { return allocator_; }
  [[nodiscard]] const Allocator& allocator() const noexcept { return allocator_; }
  // Whether its memory is pages of one range, mapped and given back one by one.
  [[nodiscard]] bool maps_pages() const noexcept { return meter_.properties().maps_pages; }

  const c10::MempoolId_t id;
  const Source source;
  const bool whole_segments;
  std::atomic<int> uses{1};
  std::atomic<bool> use_on_oom{false};

 private:
  void served(const Block& block) noexcept override { events_.served(id, block); }
  void freed(const Block& block, bool waiting) noexcept override {
    events_.freed(id, block, waiting);
  }
  void completed(const Block& block) noexcept override { events_.completed(id, block); }
  void came(void* base, Bytes size, bool whole) noexcept override {
    events_.came(id, base, size, whole);
  }
  void goes(void* base, Bytes size, bool whole) noexcept override {
    events_.goes(id, base, size, whole);
  }
  [[nodiscard]] Allocator::Options with_listener(Allocator::Options options) noexcept {
    options.listener = this;
    options.splits = !whole_segments;
    return options;
  }

  PoolEvents& events_;
  const std::unique_ptr<Device> segments_;  // where memory does not come as pages of a range
  MeteredDevice meter_;
  Allocator allocator_;
};

}  // namespace berth::torch
