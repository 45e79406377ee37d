#pragma once

#include "csrc/core/bytes.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace berth::torch {

// What torch.cuda.memory._record_memory_history() asks for, of one GPU: a ring of entries, contexts
// of live blocks, and trackers that hear of every entry.
//
// Contexts are gathered by gather(), outside of all locks, since that may take Python's; the rest
// is called under the GPU's lock. Entries for trackers queue up and are delivered by who lets go of
// that lock, but for memory that goes, which trackers hear of at once, with all before it: before
// the driver does.
class History {
 public:
  using Entry = c10::CachingDeviceAllocator::TraceEntry;
  using Context = std::shared_ptr<c10::GatheredContext>;
  using When = c10::CachingDeviceAllocator::RecordContext;
  using Tracker = c10::CachingDeviceAllocator::AllocatorTraceTracker;

  struct Settings {
    bool enabled = false;
    c10::CachingDeviceAllocator::CreateContextFn create_context = nullptr;
    std::size_t max_entries = 1;
    When when = When::NEVER;
    bool clear = false;
    std::vector<std::string> skip_actions;
  };

  // Any lock or none. Null where no context is wanted at this level.
  [[nodiscard]] Context gather(When level) const {
    if (when_.load(std::memory_order_relaxed) < level) [[likely]]
      return nullptr;
    const auto create = create_context_.load(std::memory_order_relaxed);
    return create == nullptr ? nullptr : create();
  }
  // Whether entries hold contexts, as from ALLOC on; below that live blocks alone do.
  [[nodiscard]] bool for_entries() const noexcept {
    return when_.load(std::memory_order_relaxed) >= When::ALLOC;
  }
  // Whether anybody wants to know: else add() need not be called.
  [[nodiscard]] bool active() const noexcept { return active_.load(std::memory_order_relaxed); }

  // --- Under the GPU's lock

  void set(Settings settings);
  void attach(Tracker tracker);
  void add(Entry entry) noexcept;
  // An entry that trackers must hear of now, after those that they have not heard of yet.
  void add_and_tell(Entry entry) noexcept;
  void keep_context(const void* block, Context context) noexcept;
  [[nodiscard]] Context context_of(const void* block) const noexcept;
  [[nodiscard]] Context forget_context(const void* block) noexcept;
  // Oldest first.
  [[nodiscard]] std::vector<Entry> entries() const;
  // What trackers have not heard of yet, with the trackers.
  using Trackers = std::shared_ptr<const std::vector<Tracker>>;
  [[nodiscard]] std::vector<Entry> take_undelivered(Trackers* trackers) noexcept;
  [[nodiscard]] bool undelivered() const noexcept {
    return undelivered_flag_.load(std::memory_order_relaxed);
  }

  // Whether the calling thread is inside a tracker that runs under the GPU's lock.
  [[nodiscard]] static bool inside_tracker() noexcept;

 private:
  void insert(Entry entry);

  std::atomic<bool> active_{false}, enabled_{false}, undelivered_flag_{false};
  std::atomic<When> when_{When::NEVER};
  std::atomic<c10::CachingDeviceAllocator::CreateContextFn> create_context_{nullptr};
  std::size_t max_entries_ = 1;
  std::unordered_set<int> skipped_;
  std::deque<Entry> ring_;
  std::unordered_map<const void*, Context> contexts_;
  Trackers trackers_;
  std::vector<Entry> undelivered_;
};

}  // namespace berth::torch
