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

// Entries on their way from one thread to the one that writes them: a list of blocks with one
// producer and one consumer, and no lock.
//
// The producer fills the last block and publishes each entry by the block's count; the consumer
// reads up to the count and gives used-up blocks back over a stack that the producer takes whole
// (so no address can return in the middle of a pop). Entries before count, block before link: both
// by release and acquire.
class ThreadBuffer {
 public:
  static_assert(std::is_trivially_copyable_v<Entry> && std::is_trivially_destructible_v<Entry>);
  // Small, since every live thread has one or two.
  static constexpr std::size_t kBlockBytes = 8 * 1024;
  static constexpr std::size_t kOwnBlocks = 2;
  static constexpr std::size_t kBlockEntries = kBlockBytes / sizeof(Entry) - 1;

  // How many blocks all buffers of a recorder have, and may have, beyond the own ones of each: so
  // neither many threads nor those that made most of it keep another from recording. Outlives them.
  struct Budget {
    explicit Budget(Bytes bytes) noexcept : limit(bytes / kBlockBytes) {}
    std::atomic<std::size_t> blocks{0};
    const std::size_t limit;
  };

  ThreadBuffer(ThreadId thread, std::shared_ptr<Budget> budget) noexcept
      : thread_(thread), budget_(std::move(budget)) {}
  ~ThreadBuffer() {
    // Both sides are done with it. A block is in exactly one of the three lists.
    for (Block* block = reading_ != nullptr ? reading_ : head_.load(); block != nullptr;)
      destroy(std::exchange(block, block->next.load()));
    for (Block* block = spare_; block != nullptr;) destroy(std::exchange(block, block->below));
    for (Block* block = returned_; block != nullptr;) destroy(std::exchange(block, block->below));
  }
  ThreadBuffer(const ThreadBuffer&) = delete;
  ThreadBuffer& operator=(const ThreadBuffer&) = delete;

  [[nodiscard]] ThreadId thread() const noexcept { return thread_; }

  // Producer: stores an entry; false where memory is short or the budget used up, and the entry is
  // lost. The own blocks serve again once they are drained.
  [[nodiscard]] bool push(Tick tick, std::uint64_t time_ns, const Event& event) noexcept {
    if (filled_ == kBlockEntries) [[unlikely]] {
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
      if (read_ < kBlockEntries) return;
      Block* const next = reading_->next.load(std::memory_order_acquire);
      if (next == nullptr) return;
      Block* const used = std::exchange(reading_, next);
      read_ = 0;
      // After a burst all but a few blocks go back to the system.
      if (++kept <= kKeptBlocks) {
        give_back(used);
      } else {
        destroy(used);
      }
    }
  }

 private:
  static constexpr std::size_t kKeptBlocks = 2;  // of one drain

  struct Block {
    Block() noexcept {}  // leaves the slots as they are
    ~Block() {}
    std::atomic<std::size_t> count{0};
    std::atomic<Block*> next{nullptr};
    Block* below = nullptr;  // in a stack of unused blocks
    union {
      std::array<Entry, kBlockEntries> slots;
    };
  };
  static_assert(sizeof(Block) <= kBlockBytes);

  bool grow() noexcept {
    if (spare_ == nullptr) spare_ = returned_.exchange(nullptr, std::memory_order_acquire);
    Block* block = spare_;
    if (block != nullptr) {
      spare_ = block->below;
      block->count.store(0, std::memory_order_relaxed);
      block->next.store(nullptr, std::memory_order_relaxed);
    } else {
      if (!take_from_budget()) return false;
      block = new (std::nothrow) Block;
      if (block == nullptr) {
        return_to_budget();
        return false;
      }
    }
    (last_ == nullptr ? head_ : last_->next).store(block, std::memory_order_release);
    last_ = block;
    filled_ = 0;
    return true;
  }

  void give_back(Block* block) noexcept {
    block->below = returned_.load(std::memory_order_relaxed);
    while (!returned_.compare_exchange_weak(block->below, block, std::memory_order_release,
                                            std::memory_order_relaxed)) {
    }
  }

  void destroy(Block* block) noexcept {
    delete block;
    return_to_budget();
  }

  // Each block beyond the own ones is taken once and returned once, whichever goes first.
  bool take_from_budget() noexcept {
    if (blocks_.fetch_add(1, std::memory_order_relaxed) < kOwnBlocks) return true;
    if (budget_->blocks.fetch_add(1, std::memory_order_relaxed) < budget_->limit) return true;
    return_to_budget();
    return false;
  }
  void return_to_budget() noexcept {
    if (blocks_.fetch_sub(1, std::memory_order_relaxed) > kOwnBlocks)
      budget_->blocks.fetch_sub(1, std::memory_order_relaxed);
  }

  const ThreadId thread_;
  const std::shared_ptr<Budget> budget_;
  std::atomic<std::size_t> blocks_{0};
  std::atomic<Block*> head_{nullptr};
  std::atomic<bool> finished_{false};
  // Producer's. A line apart: both sides write all the time.
  alignas(64) Block* last_ = nullptr;
  std::size_t filled_ = kBlockEntries;
  Block* spare_ = nullptr;
  std::atomic<Block*> returned_{nullptr};
  // Consumer's.
  alignas(64) Block* reading_ = nullptr;
  std::size_t read_ = 0;
};

}  // namespace berth::trace
