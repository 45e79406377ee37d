#pragma once

#include "csrc/core/spin_mutex.h"
#include "csrc/device/address_table.h"
#include "csrc/device/held_memory.h"
#include "csrc/runtime/allocator.h"
#include "csrc/torch/cuda/history.h"
#include "csrc/torch/cuda/statistics.h"
#include "csrc/torch/cuda/stream_lanes.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace berth::torch {

// What one GPU tells of its memory: the counters of torch.cuda.memory_stats(), the history, and
// those who hear of it (trackers, profilers).
//
// Each pool of the GPU has a PoolListener, whose calls come under the GPU's lock; so counters and
// history are exact at any time. Trackers hear of most things later, with no lock held: a thread
// that asks, frees or trims does so inside a Call, which tells them at its end. Thread-safe.
class Reports {
 public:
  using When = History::When;

  // `mutex` is the GPU's lock, which the allocators of its pools share.
  Reports(int index, SpinMutex& mutex, const StreamLanes& lanes, AddressTable& addresses) noexcept
      : index_(index), mutex_(mutex), lanes_(lanes), addresses_(addresses) {}

  // What a thread does now: on the stack, around calls of the GPU's allocators, with no lock held.
  // Gathers where it comes from, if that is wanted at this level, since that may take Python's
  // lock. Its end tells trackers.
  class Call {
   public:
    // `asked`: what the program asked for, where the allocator is asked for more; else 0.
    Call(Reports& reports, When level, Bytes asked = 0) noexcept
        : reports_(reports), attended_(reports.history_.active() || asked != 0) {
      if (attended_) [[unlikely]]
        reports.attend(level, asked);
    }
    ~Call() {
      if (attended_) [[unlikely]]
        forget();
      reports_.deliver();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    static void forget() noexcept;

    Reports& reports_;
    const bool attended_;
  };

  // Tells trackers what they have not heard of yet. For who goes on inside a Call.
  void deliver() noexcept {
    if (history_.undelivered()) [[unlikely]]
      tell_trackers();
  }
  // A block came (its size) or went (the same below zero). Whether anybody listens costs much to
  // ask, so who calls asks c10::memoryProfilingEnabled() once.
  void tell_profiler(void* block, std::int64_t size) noexcept;

  struct Totals {
    Bytes allocated = 0, reserved = 0;
  };
  void retried();
  // A request failed; `refused`: and the driver was not asked.
  Totals exhausted(Bytes asked, Bytes free, bool refused);
  void synchronized();

  // `holes`: how many there are now.
  [[nodiscard]] c10::CachingDeviceAllocator::DeviceStats statistics(std::uint64_t holes);
  void reset_accumulated();
  void reset_peak();

  [[nodiscard]] std::vector<History::Entry> history_entries();
  void note_snapshot();
  void set_history(History::Settings settings);
  void attach_tracker(History::Tracker tracker);
  // An entry for this live block, where this libtorch has such ones.
  void annotate(const void* block, Bytes requested, LaneKey lane, const std::string& text);
  [[nodiscard]] History::Context context_of(const void* block);
  // Under the GPU's lock: the same; and what the program asked for of a live block, where that was
  // rounded to `requested`, else `requested`.
  [[nodiscard]] History::Context context_locked(const void* block) const noexcept {
    return history_.context_of(block);
  }
  [[nodiscard]] Bytes asked_locked(const void* block, Bytes requested) const noexcept {
    const auto it = asked_.find(block);
    return it == asked_.end() ? requested : it->second;
  }
  // Which of the process's segments the one that begins there is, in the order in which they came;
  // -1 where its memory comes in pages. Who registers segments with several ranks goes by that.
  [[nodiscard]] int segment_number_locked(const void* base) const noexcept {
    const auto it = segment_numbers_.find(base);
    return it == segment_numbers_.end() ? -1 : it->second;
  }

 private:
  friend class PoolListener;

  // Under the GPU's lock.
  void served(c10::MempoolId_t pool, const BlockListener::Block& block) noexcept;
  void freed(c10::MempoolId_t pool, const BlockListener::Block& block, bool waiting) noexcept;
  void completed(c10::MempoolId_t pool, const BlockListener::Block& block) noexcept;
  void reserved(c10::MempoolId_t pool, void* base, Bytes size, HeldMemory::Holding holding,
                int segments) noexcept;
  void releasing(c10::MempoolId_t pool, void* base, Bytes size, HeldMemory::Holding holding,
                 int segments) noexcept;
  void moved(c10::MempoolId_t pool, void* to, void* from, Bytes size, int segments) noexcept;
  [[nodiscard]] History::Entry entry(History::Entry::Action action, std::size_t address,
                                     std::size_t size, LaneKey lane, c10::MempoolId_t pool,
                                     History::Context context) const;

  void note_served(c10::MempoolId_t pool, const BlockListener::Block& block) noexcept;
  void note_freed(c10::MempoolId_t pool, const BlockListener::Block& block, bool waiting) noexcept;
  void note_completed(c10::MempoolId_t pool, const BlockListener::Block& block) noexcept;
  void number_segment(const void* base) noexcept;
  void keep_asked(const void* block) noexcept;
  [[nodiscard]] BlockListener::Block as_asked(BlockListener::Block block) const noexcept;

  void attend(When level, Bytes asked) noexcept;
  void tell_trackers() noexcept;

  const int index_;
  SpinMutex& mutex_;  // covers what follows
  const StreamLanes& lanes_;
  AddressTable& addresses_;
  Statistics statistics_;
  History history_;
  std::atomic<bool> rounds_{false};  // some block's size was ever rounded
  std::unordered_map<const void*, int> segment_numbers_;
  std::unordered_map<const void*, Bytes> asked_;  // of live blocks whose size was rounded
};

// Hears of one pool's blocks and of its memory, and reports them with the pool's id.
class PoolListener final : public BlockListener, public HeldMemory::Listener {
 public:
  PoolListener(Reports& reports, c10::MempoolId_t pool) noexcept : reports_(reports), pool_(pool) {}

  void served(const Block& block) noexcept override;
  void freed(const Block& block, bool waiting) noexcept override;
  void completed(const Block& block) noexcept override;
  void reserved(void* base, Bytes size, HeldMemory::Holding holding,
                int segments) noexcept override;
  void releasing(void* base, Bytes size, HeldMemory::Holding holding,
                 int segments) noexcept override;
  void moved(void* to, void* from, Bytes size, int segments) noexcept override;

 private:
  Reports& reports_;
  const c10::MempoolId_t pool_;
};

// What a thread says of its requests (torch.cuda.memory): the innermost compiled region, and
// metadata of the user's.
[[nodiscard]] std::vector<std::string>& compile_contexts() noexcept;
[[nodiscard]] std::string& user_metadata() noexcept;

}  // namespace berth::torch
