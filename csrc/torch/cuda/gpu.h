#pragma once

#include "csrc/core/spin_mutex.h"
#include "csrc/cuda/cuda_device.h"
#include "csrc/device/page_store.h"
#include "csrc/runtime/allocator.h"
#include "csrc/torch/cuda/private_pools.h"
#include "csrc/torch/cuda/reports.h"
#include "csrc/torch/cuda/stream_lanes.h"
#include "csrc/torch/cuda/uncached_blocks.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace berth::torch {

// One GPU under libtorch: the planned allocator and private pools beside it, what is told of them,
// and the chain that ends in an out-of-memory error.
//
// Made at the first request on its GPU, never destroyed. Thread-safe. One short lock covers the
// allocators of all pools and the reports; a second one the table of pools, which requests look at
// only while a graph is captured or a MemPool is in use.
class Gpu {
 public:
  // A request that fails: what this process holds, and what the device has in all and still free.
  struct Exhaustion {
    std::int64_t device;
    Bytes asked, held, total, free;
    bool refused;  // and the driver was not asked
  };
  using Observer = std::function<void(const Exhaustion&)>;

  // Throws what Allocator's constructor throws. `on_out_of_memory` is called with no lock held.
  // `addresses` outlives the GPU.
  Gpu(int index, const Config& config, AddressTable& addresses, Observer on_out_of_memory);

  // --- Blocks

  // A block for work on `stream`, of this GPU. Throws c10::OutOfMemoryError after every fallback.
  [[nodiscard]] void* allocate(std::size_t size, const c10::cuda::CUDAStream& stream);
  // The stream by its handle.
  [[nodiscard]] void* allocate(std::size_t size, cudaStream_t stream);
  // At exactly this address; see NewerMethods::allocate_at().
  [[nodiscard]] void* allocate_at(void* address, std::size_t size,
                                  const c10::cuda::CUDAStream& stream);
  // Takes the block back, where it is one of this GPU's.
  Allocator::FreeOutcome free(void* block) noexcept;
  // Ignored for what is not a live block of this GPU.
  void record_use(const void* block, const c10::cuda::CUDAStream& stream);
  [[nodiscard]] bool contains(const void* address) const;
  void mark_step(const c10::cuda::CUDAStream& stream) noexcept;

  // --- Limits

  [[nodiscard]] Bytes total() const noexcept { return store_.properties().total_bytes; }
  [[nodiscard]] double memory_fraction() const noexcept {
    return fraction_.load(std::memory_order_relaxed);
  }
  void set_memory_fraction(double fraction);
  [[nodiscard]] Bytes free_bytes() noexcept;
  [[nodiscard]] Bytes largest_block();
  // Gives back what is free: of one pool, or of the main one and all that nobody uses any more.
  void empty_cache(c10::MempoolId_t pool);
  void trim();  // of the main pool, for berth itself
  // See cuda_release_memory(): what is asked for while contents are away is a private pool's.
  Bytes release_memory(bool keep_contents);
  Bytes resume_memory();
  // Straight to the driver from now on (false), as PYTORCH_NO_CUDA_MEMORY_CACHING asks.
  void set_caching(bool on) noexcept { caching_.store(on, std::memory_order_relaxed); }

  // --- Private pools

  [[nodiscard]] PrivatePools& pools() noexcept { return pools_; }
  void begin_pool(c10::MempoolId_t pool, PrivatePools::Filter filter);
  // Counts the captures that libtorch tells of.
  void note_capture(bool ended);
  // Throws where the pool is gone.
  [[nodiscard]] c10::cuda::CUDACachingAllocator::CheckpointDelta restore_pool(
      const c10::cuda::CUDACachingAllocator::AllocatorState& state, c10::DeleterFnPtr deleter);

  // --- What is told

  [[nodiscard]] Reports& reports() noexcept { return reports_; }
  [[nodiscard]] c10::CachingDeviceAllocator::DeviceStats statistics();
  void add_segments(std::optional<c10::MempoolId_t> pool,
                    std::vector<c10::CachingDeviceAllocator::SegmentInfo>* segments);
  void annotate(const void* block, const std::string& text);

  // --- Other processes and GPUs

  [[nodiscard]] CudaDevice& device() noexcept { return *cuda_; }
  [[nodiscard]] Allocator& planned() noexcept { return main_.allocator(); }
  // The memory around the address: its start, and its size where `size` is given.
  [[nodiscard]] void* base_of(const void* address, std::size_t* size);
  [[nodiscard]] CudaSharedMemory share(const void* block);

  // Holds all locks; after_fork() lets go of them, in the parent and in the child.
  void before_fork() noexcept;
  void after_fork() noexcept;
  void shut_down() noexcept { main_.allocator().shut_down(); }

 private:
  void* allocate_on(std::size_t size, LaneKey lane, cudaStream_t stream);
  void* allocate_in(PrivatePool& pool, Bytes asked, LaneKey lane);
  void* search_everywhere(PrivatePool& pool, Bytes size, LaneKey lane, const std::string& reason);
  [[noreturn]] void throw_out_of_memory(Bytes size, const std::string& reason);
  [[nodiscard]] std::int64_t size_of(const void* block) noexcept;
  [[nodiscard]] std::optional<Allocator::BlockInfo> find(const void* block);
  [[nodiscard]] Allocator::Options options(const Config& config, bool main);

  const int index_;
  const Config config_;
  const Observer on_out_of_memory_;
  const std::unique_ptr<CudaDevice> cuda_;
  StreamLanes lanes_;
  PageStore store_;  // of all pools together: the memory fraction
  mutable SpinMutex mutex_;
  Reports reports_;
  PrivatePools pools_;
  PrivatePool main_;
  std::mutex leaving_;  // memory leaves or comes back: one at a time
  std::atomic<bool> caching_{true};
  std::atomic<double> fraction_{1.0};
  UncachedBlocks uncached_;
};

}  // namespace berth::torch
