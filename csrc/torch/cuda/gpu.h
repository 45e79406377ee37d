#pragma once

#include "csrc/core/spin_mutex.h"
#include "csrc/cuda/cuda_device.h"
#include "csrc/device/metered_device.h"
#include "csrc/runtime/allocator.h"
#include "csrc/torch/cuda/history.h"
#include "csrc/torch/cuda/private_pool.h"
#include "csrc/torch/cuda/statistics.h"
#include "csrc/torch/cuda/stream_lanes.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace berth::torch {

// One GPU under libtorch: the planned allocator, private pools of graphs and MemPools, statistics,
// history, and the chain that ends in an out-of-memory error.
//
// Made at the first request on its GPU, never destroyed. Thread-safe. One short lock covers the
// allocators of all pools, the statistics and the history; a second one the table of pools, which
// requests look at only while a graph is captured or a MemPool is in use.
class Gpu final : PoolEvents {
 public:
  // A request that fails: what this process holds, and what the device has in all and still free.
  struct Exhaustion {
    std::int64_t device;
    Bytes asked, held, total, free;
    bool refused;  // and the driver was not asked
  };
  using Observer = std::function<void(const Exhaustion&)>;

  // Throws what Allocator's constructor throws. `on_out_of_memory` is called with no lock held.
  Gpu(int index, const Config& config, Observer on_out_of_memory);

  // A block for work on `stream`, of this GPU. Throws c10::OutOfMemoryError after every fallback.
  [[nodiscard]] void* allocate(std::size_t size, const c10::cuda::CUDAStream& stream);
  // The stream by its handle.
  [[nodiscard]] void* allocate(std::size_t size, cudaStream_t stream);
  // At exactly this address; see NewerMethods::allocate_at().
  [[nodiscard]] void* allocate_at(void* address, std::size_t size,
                                  const c10::cuda::CUDAStream& stream);
  // Whether the block is one of this GPU's, and then takes it back. Never throws: misuse is one
  // warning.
  bool free(void* block) noexcept;
  // Ignored for what is not a live block of this GPU.
  bool record_use(const void* block, const c10::cuda::CUDAStream& stream);
  [[nodiscard]] bool contains(const void* address) const;

  void mark_step(const c10::cuda::CUDAStream& stream) noexcept;
  [[nodiscard]] Allocator& planned() noexcept { return main_.allocator(); }

  // --- Statistics and limits
  [[nodiscard]] c10::CachingDeviceAllocator::DeviceStats statistics();
  void reset_accumulated();
  void reset_peak();
  [[nodiscard]] Bytes total() const noexcept { return meter_.properties().total_bytes; }
  [[nodiscard]] double memory_fraction() const noexcept {
    return fraction_.load(std::memory_order_relaxed);
  }
  void set_memory_fraction(double fraction);
  [[nodiscard]] Bytes free_bytes() noexcept;
  [[nodiscard]] Bytes largest_block();
  // Gives back what is free: of one pool, or of the main one and all that nobody uses any more.
  void empty_cache(c10::MempoolId_t pool);
  // Straight to the driver from now on (false), as PYTORCH_NO_CUDA_MEMORY_CACHING asks.
  void set_caching(bool on) noexcept { caching_.store(on, std::memory_order_relaxed); }

  // --- Private pools (gpu_pools.cc)
  using Filter = std::function<bool(cudaStream_t)>;
  void create_or_use_pool(c10::MempoolId_t pool, PrivatePool::Source source = nullptr);
  void begin_pool(c10::MempoolId_t pool, Filter filter);
  void end_pool(c10::MempoolId_t pool);
  // Counts the captures that libtorch tells of.
  void note_capture(bool ended);
  void release_pool(c10::MempoolId_t pool);
  [[nodiscard]] int pool_uses(c10::MempoolId_t pool);
  void set_use_on_oom(c10::MempoolId_t pool, bool on);
  // One block a segment from now on, for a pool that has had no memory yet.
  void set_no_split(c10::MempoolId_t pool);
  [[nodiscard]] bool pool_blocks_are(c10::MempoolId_t pool,
                                     const std::unordered_set<void*>& expected);
  [[nodiscard]] std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> pool_state(
      c10::MempoolId_t pool);
  [[nodiscard]] c10::cuda::CUDACachingAllocator::CheckpointDelta restore_pool(
      const c10::cuda::CUDACachingAllocator::AllocatorState& state, c10::DeleterFnPtr deleter);

  // --- Snapshots and history (gpu_snapshot.cc)
  void add_segments(std::optional<c10::MempoolId_t> pool,
                    std::vector<c10::CachingDeviceAllocator::SegmentInfo>* segments);
  [[nodiscard]] std::vector<History::Entry> history_entries();
  void note_snapshot();
  void set_history(History::Settings settings);
  void attach_tracker(History::Tracker tracker);
  [[nodiscard]] History::Context context_of(const void* block);
  void annotate(const void* block, const std::string& text);

  // --- Other processes and GPUs
  [[nodiscard]] CudaDevice& device() noexcept { return *cuda_; }
  // The memory around the address: its start, and its size where `size` is given.
  [[nodiscard]] void* base_of(const void* address, std::size_t* size);
  [[nodiscard]] CudaSharedMemory share(const void* block);

  // Holds all locks; after_fork() lets go of them, in the parent and in the child.
  void before_fork() noexcept;
  void after_fork() noexcept;
  void shut_down() noexcept { main_.allocator().shut_down(); }

 private:
  struct UsedPool {
    c10::MempoolId_t pool;
    Filter filter;
  };

  void* allocate_on(std::size_t size, LaneKey lane, cudaStream_t stream);
  void* allocate_in(PrivatePool& pool, Bytes size, LaneKey lane);
  void* allocate_uncached(Bytes size);
  bool free_uncached(void* block) noexcept;
  void* search_everywhere(PrivatePool& pool, Bytes size, LaneKey lane, const std::string& reason);
  [[noreturn]] void throw_out_of_memory(Bytes size, const std::string& reason);
  void warn_of_misuse(const void* block) noexcept;
  void report(void* block, std::int64_t size) noexcept;
  void deliver() noexcept;
  [[nodiscard]] Allocator::Options options(const Config& config, bool main);

  using PoolPointer = std::shared_ptr<PrivatePool>;
  [[nodiscard]] PoolPointer pool_for(cudaStream_t stream);
  [[nodiscard]] PoolPointer find_pool(c10::MempoolId_t pool);
  [[nodiscard]] PoolPointer pool_with(const void* block);
  [[nodiscard]] std::optional<Allocator::BlockInfo> find(const void* block);
  [[nodiscard]] std::vector<PoolPointer> all_pools() const;
  bool release_unused_pools();
  void note_routes();

  void served(c10::MempoolId_t pool, const BlockListener::Block& block) noexcept override;
  void freed(c10::MempoolId_t pool, const BlockListener::Block& block,
             bool waiting) noexcept override;
  void completed(c10::MempoolId_t pool, const BlockListener::Block& block) noexcept override;
  void came(c10::MempoolId_t pool, void* base, Bytes size, bool whole) noexcept override;
  void goes(c10::MempoolId_t pool, void* base, Bytes size, bool whole) noexcept override;
  [[nodiscard]] History::Entry entry(History::Entry::Action action, std::size_t address,
                                     std::size_t size, LaneKey lane, c10::MempoolId_t pool,
                                     History::Context context) const;

  const int index_;
  const Config config_;
  const Observer on_out_of_memory_;
  const std::unique_ptr<CudaDevice> cuda_;
  StreamLanes lanes_;
  MeteredDevice meter_;  // of all pools together: the memory fraction
  mutable SpinMutex mutex_;
  Statistics statistics_;
  History history_;
  std::atomic<int> routes_{0};    // captures of graphs and uses of MemPools: what `used_` holds
  std::atomic<int> captures_{0};  // the same, but captures alone where libtorch tells them apart
  PrivatePool main_;

  mutable std::mutex pools_mutex_;
  std::unordered_map<c10::MempoolId_t, PoolPointer, c10::MempoolIdHash> pools_;
  std::vector<UsedPool> used_;                  // newest last
  std::atomic<bool> has_private_pools_{false};  // `pools_` ever held one

  std::atomic<bool> caching_{true};
  std::atomic<double> fraction_{1.0};
  std::unique_ptr<CudaDevice> uncached_device_;
  std::unordered_map<void*, Bytes> uncached_;  // blocks and what they hold; pools_mutex_ covers it
  std::atomic<std::size_t> uncached_count_{0};
};

// What a thread says of its requests (torch.cuda.memory): the innermost compiled region, and
// metadata of the user's.
[[nodiscard]] std::vector<std::string>& compile_contexts() noexcept;
[[nodiscard]] std::string& user_metadata() noexcept;

}  // namespace berth::torch
