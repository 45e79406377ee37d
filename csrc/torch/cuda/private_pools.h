#pragma once

#include "csrc/torch/cuda/private_pool.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace berth::torch {

// The private pools of one GPU: memory of CUDA graphs and of torch.cuda.MemPool.
//
// A pool is routed to from begin() to end(): requests of the streams that its filter takes are its
// own then, those of a captured stream for example. So a graph finds nobody else's blocks in the
// memory that it comes back to at each replay, and nobody else gets it: what is free in a pool
// stays there while the pool is used. Thread-safe. Filters are called with no lock held.
class PrivatePools {
 public:
  using Id = c10::MempoolId_t;
  using Filter = std::function<bool(cudaStream_t)>;
  using PoolPointer = std::shared_ptr<PrivatePool>;
  // Makes the pool with this id; `source` and `whole`: see PrivatePool.
  using Make = std::function<PoolPointer(Id id, PrivatePool::Source source, bool whole)>;
  // Whether the stream is captured, or may be. Called with no lock held.
  using Capturing = std::function<bool(cudaStream_t)>;

  PrivatePools(Make make, Capturing capturing)
      : make_(std::move(make)), capturing_(std::move(capturing)) {}

  void create_or_use(Id id, PrivatePool::Source source = nullptr);
  // Gives up one use. Throws where it has none.
  void release(Id id);
  [[nodiscard]] int uses(Id id) const;
  void set_use_on_oom(Id id, bool on);
  // One block a segment from now on, for a pool that has had no memory yet.
  void set_no_split(Id id);

  // Counts a use. `stream` is the one that the caller works on: where the filter does not take it
  // yet, a capture is about to begin on it.
  void begin(Id id, Filter filter, cudaStream_t stream);
  void end(Id id);
  // Ends what was begun for captures that are over: libtorch throws before it calls end() where the
  // driver made a capture void. A pool that was this capture's alone is used by nobody then.
  void end_void_captures();
  // From now on all requests that no filter takes are those of a pool of its own, kMeanwhile; or no
  // longer, and that pool goes once nothing lives in it.
  static constexpr Id kMeanwhile{~0ULL, ~0ULL};
  void divert(bool on);
  // Whether any pool is routed to: else no request needs to look.
  [[nodiscard]] bool routed() const noexcept {
    return routes_.load(std::memory_order_relaxed) != 0;
  }
  // The newest that is routed to and whose filter takes the stream, else where requests are
  // diverted to, or null.
  [[nodiscard]] PoolPointer routed_for(cudaStream_t stream);

  // A capture that libtorch tells of begins or ends.
  void note_capture(bool ended);
  // How many graphs are being captured; where libtorch does not tell, how many pools are routed to
  // whose filter waits for a capture.
  [[nodiscard]] const std::atomic<int>& captures() const noexcept { return captures_; }

  // Null where there is none.
  [[nodiscard]] PoolPointer find(Id id) const;
  // The one whose memory the address lies in.
  [[nodiscard]] PoolPointer with(const void* address) const;
  [[nodiscard]] std::vector<PoolPointer> all() const;

  // What nobody uses any more gives its memory back, and goes where nothing lives in it. Whether
  // any memory went back. O(such pools).
  bool release_unused();

  // A block of this pool is used on another stream than its own.
  void note_user(PrivatePool& pool) noexcept {
    pool.has_users = true;
    have_users_.store(true, std::memory_order_relaxed);
  }
  // What such streams are done with comes free.
  void process_events();

  // Around fork(): the lock is held over it.
  void before_fork() noexcept { mutex_.lock(); }
  void after_fork() noexcept { mutex_.unlock(); }

 private:
  struct Route {
    Id pool;
    Filter filter;
    bool captures;
    cudaStream_t stream;      // of begin(), as the thread is
    std::thread::id thread;   // which makes no other call before its capture has begun
    std::uint64_t number;     // no two have the same
    bool has_served = false;  // so the capture had begun
  };

  void note_routes();
  void note_served(std::uint64_t number);

  const Make make_;
  const Capturing capturing_;
  // Captures of graphs and uses of MemPools: what `used_` holds; and whether others are diverted.
  std::atomic<int> routes_{0};
  std::atomic<int> captures_{0};  // of `used_`, or captures alone where libtorch tells them apart
  std::atomic<bool> has_any_{false};     // `pools_` ever held one
  std::atomic<bool> have_users_{false};  // any of them ever had one
  mutable std::mutex mutex_;             // covers what follows
  std::unordered_map<Id, PoolPointer, c10::MempoolIdHash> pools_;
  std::unordered_set<Id, c10::MempoolIdHash> unused_;  // of `pools_`
  std::unordered_set<Id, c10::MempoolIdHash> voided_;  // uses that end_void_captures() gave up
  std::vector<Route> used_;                            // newest last
  std::uint64_t begun_ = 0;                            // routes so far
  bool diverted_ = false;
};

}  // namespace berth::torch
