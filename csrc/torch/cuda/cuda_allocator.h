#pragma once

#include "csrc/device/address_table.h"
#include "csrc/torch/cuda/gpu.h"
#include "csrc/torch/cuda/newer_libtorch.h"

#include <berth/config.h>

#include <c10/cuda/CUDACachingAllocator.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// The base class's own getMemoryInfo() names it. Ours stands in its place, so that it is never
// called, and programs need not link the CUDA runtime for berth's sake.
#pragma weak cudaMemGetInfo

namespace berth::torch {

// berth as libtorch's CUDA allocator: the whole interface of PyTorch's caching allocator over one
// Gpu a device.
//
// Derives from CUDAAllocator itself, so that a pure virtual that another libtorch adds is a compile
// error; those that newer ones added are in newer_libtorch.h. Blocks are aligned to 512 bytes; a
// freed block serves its own stream at once and others after events. A Gpu is made at the first
// request on its device, since that needs a context. Never destroyed: storages keep a pointer to
// their allocator. Thread-safe.
class CudaAllocator final : public CudaInterface {
 public:
  explicit CudaAllocator(Config config);

  // The one of this process, or null.
  [[nodiscard]] static CudaAllocator* get() noexcept { return instance_.load(); }
  // Makes this the one that deleters find. Once.
  void become_instance() noexcept { instance_.store(this); }

  // The GPUs that were used so far.
  [[nodiscard]] std::vector<Gpu*> gpus() const noexcept;
  // Makes it where it is not there. Throws c10::Error.
  [[nodiscard]] Gpu& gpu(c10::DeviceIndex device);
  // A step of the current stream of each GPU ends.
  void mark_step() noexcept;
  // Whether this is a forked child of a process that had used CUDA: requests are refused then, and
  // frees do nothing. A child of a process that had not is like any other process.
  [[nodiscard]] bool forked() const noexcept { return forked_.load(std::memory_order_relaxed); }

  // Around fork(): all locks are held over it, so that the child finds them free and nothing half
  // done.
  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  void after_fork_in_child() noexcept;

  // --- c10::Allocator
  c10::DataPtr allocate(std::size_t size) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t size) const override;
  bool is_simple_data_ptr(const c10::DataPtr& block) const override {
    return block.get() == block.get_context();
  }

  // --- c10::DeviceAllocator
  bool initialized() override;
  void emptyCache(c10::MempoolId_t pool = {0, 0}) override;
  using CUDAAllocator::recordStream;
  void recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override;

  // --- CUDAAllocator
  void* raw_alloc(std::size_t size) override;
  void* raw_alloc_with_stream(std::size_t size, cudaStream_t stream) override;
  void raw_delete(void* block) override;
  void init(int device_count) override;
  double getMemoryFraction(c10::DeviceIndex device) override;
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override;
  std::vector<c10::cuda::CUDACachingAllocator::StreamSegmentSize> getExpandableSegmentSizes(
      c10::DeviceIndex device) override;
  void enable(bool value) override;
  bool isEnabled() const override { return caching_.load(); }
  void cacheInfo(c10::DeviceIndex device, std::size_t* largest) override;
  void* getBaseAllocation(void* block, std::size_t* size) override;
  c10::cuda::CUDACachingAllocator::SnapshotInfo snapshot(c10::MempoolId_t pool = {0, 0},
                                                         bool include_traces = true) override;
  void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  void releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  int getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  void createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                          std::shared_ptr<CUDAAllocator> source = nullptr) override;
  void setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool, bool use_on_oom) override;
  void setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  bool checkPoolLiveAllocations(c10::DeviceIndex device, c10::MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override;
  c10::cuda::CUDACachingAllocator::ShareableHandle shareIpcHandle(void* block) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
  bool isHistoryEnabled() override;
  void recordHistory(bool enabled, c10::CachingDeviceAllocator::CreateContextFn create_context,
                     std::size_t max_entries, c10::CachingDeviceAllocator::RecordContext when,
                     bool clear, const std::vector<std::string>& skip_actions) override;
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& pairs) override;
  void pushCompileContext(std::string& name) override;
  void popCompileContext() override;
  void setUserMetadata(const std::string& metadata) override;
  std::string getUserMetadata() override;
  void attachOutOfMemoryObserver(
      c10::cuda::CUDACachingAllocator::OutOfMemoryObserver observer) override;
  void attachAllocatorTraceTracker(
      c10::CachingDeviceAllocator::AllocatorTraceTracker tracker) override;
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex reached) override;
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device,
                          std::size_t size, cudaStream_t stream, bool p2p_enabled) override;
  std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> getCheckpointState(
      c10::DeviceIndex device, c10::MempoolId_t pool) override;
  c10::cuda::CUDACachingAllocator::CheckpointDelta setCheckpointPoolState(
      c10::DeviceIndex device,
      std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> state) override;
  std::string name() override { return "berth"; }

  // --- NewerMethods
  void observe_refusals(RefusalObserver observer) override;
  std::shared_ptr<c10::GatheredContext> context_of(const void* block) override;
  c10::DataPtr allocate_at(std::size_t size, void* address) override;
  void note_capture(c10::DeviceIndex device, bool ended) override;
  void annotate(const void* block, const std::string& text) override;

 private:
  static constexpr int kMaxGpus = 64;
  static_assert(kMaxGpus <= AddressTable::kMaxDevices);

  // The GPU that is current, for a request. Throws c10::Error in a forked child.
  [[nodiscard]] Gpu& current_gpu(c10::DeviceIndex* device);
  // Null where none is made.
  [[nodiscard]] Gpu* made_gpu(int index) const noexcept;
  // The GPU that says yes, or null. The one whose memory the address seems to lie in is asked
  // first, and is the only one unless the address is nobody's.
  template <class Asked>
  [[nodiscard]] Gpu* ask_for(const void* address, Asked asked) const;
  // The GPU whose memory the address lies in, or null.
  [[nodiscard]] Gpu* owner_of(const void* address) const;
  void make_ready(Gpu& gpu);
  void tell_observers(const Gpu::Exhaustion& what);
  using FreeOutcome = berth::Allocator::FreeOutcome;
  FreeOutcome take_back(void* block) noexcept;
  static void delete_block(void* block) noexcept;

  static std::atomic<CudaAllocator*> instance_;

  const Config config_;
  AddressTable addresses_;
  mutable std::mutex mutex_;  // of what follows
  std::atomic<int> device_count_{0};
  std::array<std::atomic<Gpu*>, kMaxGpus> gpus_{};
  // How often the cache of a GPU was emptied that had none yet: PyTorch's counters count it.
  std::array<std::atomic<std::int64_t>, kMaxGpus> emptied_unused_{};
  std::atomic<bool> caching_{true}, forked_{false};
  History::Settings history_;
  std::vector<History::Tracker> trackers_;
  std::vector<c10::cuda::CUDACachingAllocator::OutOfMemoryObserver> observers_;
  std::vector<RefusalObserver> refusal_observers_;
  std::vector<c10::CachingDeviceAllocator::AnnotationEntry> annotations_;
  // Made early: one made just before use has no two readings to go by.
  c10::ApproximateClockToUnixTimeConverter clock_;
};

}  // namespace berth::torch
