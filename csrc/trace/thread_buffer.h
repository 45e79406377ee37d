#pragma once

#include "csrc/trace/trace.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace berth::trace {

// Entries on their way from one thread to the one that writes them: a list of batches with one
// producer and one consumer, and no lock.
//
// The producer fills the last batch and publishes each entry by the batch's count; the consumer
// reads up to the count and gives used-up batches back over a stack that the producer takes whole
// (so no address can return in the middle of a pop). Entries before count, batch before link: both
// by release and acquire.
class ThreadBuffer {
 public:
  static_assert(std::is_trivially_copyable_v<Entry> && std::is_trivially_destructible_v<Entry>);
  // Small, since every live thread has one or two.
  static constexpr std::size_t kBatchBytes = 8 * 1024;
  static constexpr std::size_t kOwnBatches = 2;
  static constexpr std::size_t kBatchEntries = kBatchBytes / sizeof(Entry) - 1;

  // How many batches all buffers of a recorder have, and may have, beyond the own ones of each: so
  // neither many threads nor those that made most of it keep another from recording. Outlives them.
  struct Budget {
    explicit Budget(Bytes bytes) noexcept : limit(bytes / kBatchBytes) {}
    std::atomic<std::size_t> batches{0};
    const std::size_t limit;
  };

  ThreadBuffer(ThreadId thread, std::shared_ptr<Budget> budget) noexcept
      : thread_(thread), budget_(std::move(budget)) {}
  ~ThreadBuffer() {
    // Both sides are done with it. A batch is in exactly one of the three lists.
    for (Batch* batch = reading_ != nullptr ? reading_ : head_.load(); batch != nullptr;)
      destroy(std::exchange(batch, batch->next.load()));
    for (Batch* batch = spare_; batch != nullptr;) destroy(std::exchange(batch, batch->below));
    for (Batch* batch = returned_; batch != nullptr;) destroy(std::exchange(batch, batch->below));
  }
  ThreadBuffer(const ThreadBuffer&) = delete;
  ThreadBuffer& operator=(const ThreadBuffer&) = delete;

  [[nodiscard]] ThreadId thread() const noexcept { return thread_; }

  // Producer: stores an entry; false where memory is short or the budget used up, and the entry is
  // lost. The own batches serve again once they are drained.
  [[nodiscard]] bool push(Tick tick, std::uint64_t time_ns, const Event& event) noexcept {
    if (filled_ == kBatchEntries) [[unlikely]] {
      if (!grow()) return false;
    }
    ::new (&last_->slots[filled_]) Entry{tick, time_ns, thread_, event};
    last_->count.store(++filled_, std::memory_order_release);
    return true;
  }

  // Producer: nothing more will come.
  void finish() noexcept { finished_.store(true, std::memory_order_release); }

  // Consumer: true where nothing comes beyond what drain() finds from now on.
  [[nodiscard]] bool finished() const noexcept { return finished_.load(std::memory_order_acquire); }

  // Consumer: calls `use(entry)` for all that is there.
  template <class Use>
  void drain(Use use) {
    if (reading_ == nullptr) reading_ = head_.load(std::memory_order_acquire);
    std::size_t kept = 0;
    while (reading_ != nullptr) {
      const std::size_t count = reading_->count.load(std::memory_order_acquire);
      while (read_ < count) use(std::as_const(reading_->slots[read_++]));
      if (read_ < kBatchEntries) return;
      Batch* const next = reading_->next.load(std::memory_order_acquire);
      if (next == nullptr) return;
      Batch* const used = std::exchange(reading_, next);
      read_ = 0;
      // After a burst all but a few batches go back to the system.
      if (++kept <= kKeptBatches) {
        give_back(used);
      } else {
        destroy(used);
      }
    }
  }

 private:
  static constexpr std::size_t kKeptBatches = 2;  // of one drain

  struct Batch {
    Batch() noexcept {}  // leaves the slots as they are
    ~Batch() {}
    std::atomic<std::size_t> count{0};
    std::atomic<Batch*> next{nullptr};
    Batch* below = nullptr;  // in a stack of unused batches
    union {
      std::array<Entry, kBatchEntries> slots;
    };
  };
  static_assert(sizeof(Batch) <= kBatchBytes);

  bool grow() noexcept {
    if (spare_ == nullptr) spare_ = returned_.exchange(nullptr, std::memory_order_acquire);
    Batch* batch = spare_;
    if (batch != nullptr) {
      spare_ = batch->below;
      batch->count.store(0, std::memory_order_relaxed);
      batch->next.store(nullptr, std::memory_order_relaxed);
    } else {
      if (!take_from_budget()) return false;
      batch = new (std::nothrow) Batch;
      if (batch == nullptr) {
        return_to_budget();
        return false;
      }
    }
    (last_ == nullptr ? head_ : last_->next).store(batch, std::memory_order_release);
    last_ = batch;
    filled_ = 0;
    return true;
  }

  void give_back(Batch* batch) noexcept {
    batch->below = returned_.load(std::memory_order_relaxed);
    while (!returned_.compare_exchange_weak(batch->below, batch, std::memory_order_release,
                                            std::memory_order_relaxed)) {
    }
  }

  void destroy(Batch* batch) noexcept {
    delete batch;
    return_to_budget();
  }

  // Each batch beyond the own ones is taken once and returned once, whichever goes first.
  bool take_from_budget() noexcept {
    if (batches_.fetch_add(1, std::memory_order_relaxed) < kOwnBatches) return true;
    if (budget_->batches.fetch_add(1, std::memory_order_relaxed) < budget_->limit) return true;
    return_to_budget();
    return false;
  }
  void return_to_budget() noexcept {
    if (batches_.fetch_sub(1, std::memory_order_relaxed) > kOwnBatches)
      budget_->batches.fetch_sub(1, std::memory_order_relaxed);
  }

  const ThreadId thread_;
  const std::shared_ptr<Budget> budget_;
  std::atomic<std::size_t> batches_{0};
  std::atomic<Batch*> head_{nullptr};
  std::atomic<bool> finished_{false};
  // Producer's. A line apart: both sides write all the time.
  alignas(64) Batch* last_ = nullptr;
  std::size_t filled_ = kBatchEntries;
  Batch* spare_ = nullptr;
  std::atomic<Batch*> returned_{nullptr};
  // Consumer's.
  alignas(64) Batch* reading_ = nullptr;
  std::size_t read_ = 0;
};

}  // namespace berth::trace
