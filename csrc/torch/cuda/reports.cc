#include "csrc/torch/cuda/reports.h"

#include "csrc/torch/cuda/newer_libtorch.h"

#include <c10/core/Allocator.h>
#include <c10/util/ApproximateClock.h>

#include <mutex>
#include <new>
#include <utility>

namespace berth::torch {
namespace {

using Action = History::Entry::Action;

// Of the call that the thread is in: where it comes from, and what it asks for (0: what it says).
thread_local History::Context pending_context;
thread_local Bytes pending_asked = 0;

std::size_t number_of(const void* address) noexcept {
  return reinterpret_cast<std::size_t>(address);
}

}  // namespace

std::vector<std::string>& compile_contexts() noexcept {
  thread_local std::vector<std::string> contexts;
  return contexts;
}

std::string& user_metadata() noexcept {
  thread_local std::string metadata;
  return metadata;
}

// --- Calls of the program -----------------------------------------------------------------------

void Reports::attend(When level, Bytes asked) noexcept {
  pending_asked = asked;
  if (asked != 0) rounds_.store(true, std::memory_order_relaxed);
  if (!history_.active()) return;
  try {
    pending_context = history_.gather(level);
  } catch (...) {  // the entry has none
  }
}

void Reports::Call::forget() noexcept {
  pending_context.reset();
  pending_asked = 0;
}

void Reports::tell_trackers() noexcept {
  History::Trackers trackers;
  std::vector<History::Entry> entries;
  {
    const std::lock_guard lock(mutex_);
    entries = history_.take_undelivered(&trackers);
  }
  if (trackers == nullptr) return;
  for (const History::Entry& one : entries) {
    for (const History::Tracker& tracker : *trackers) {
      try {
        tracker(one);
      } catch (...) {  // a tracker's own failure
      }
    }
  }
}

void Reports::tell_profiler(void* block, std::int64_t size) noexcept {
  Totals totals;
  {
    const std::lock_guard lock(mutex_);
    totals = {statistics_.allocated(), statistics_.reserved()};
  }
  try {
    c10::reportMemoryUsageToProfiler(
        block, size, totals.allocated, totals.reserved,
        c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index_)));
  } catch (...) {  // the profiler's loss
  }
}

void Reports::retried() {
  const std::lock_guard lock(mutex_);
  statistics_.retried();
  statistics_.synchronized();
}

Reports::Totals Reports::exhausted(Bytes asked, Bytes free, bool refused) {
  const std::lock_guard lock(mutex_);
  statistics_.exhausted(refused);
  if (history_.active())
    history_.add(entry(Action::OOM, free, asked, 0, {0, 0}, std::move(pending_context)));
  return {statistics_.allocated(), statistics_.reserved()};
}

void Reports::synchronized() {
  const std::lock_guard lock(mutex_);
  statistics_.synchronized();
}

c10::CachingDeviceAllocator::DeviceStats Reports::statistics(std::uint64_t holes) {
  const std::lock_guard lock(mutex_);
  return statistics_.get(holes);
}

void Reports::reset_accumulated() {
  const std::lock_guard lock(mutex_);
  statistics_.reset_accumulated();
}

void Reports::reset_peak() {
  const std::lock_guard lock(mutex_);
  statistics_.reset_peak();
}

std::vector<History::Entry> Reports::history_entries() {
  const std::lock_guard lock(mutex_);
  return history_.entries();
}

void Reports::note_snapshot() {
  {
    const std::lock_guard lock(mutex_);
    if (history_.active())
      history_.add(entry(Action::SNAPSHOT, 0, statistics_.reserved(), 0, {0, 0}, nullptr));
  }
  deliver();
}

void Reports::set_history(History::Settings settings) {
  const std::lock_guard lock(mutex_);
  history_.set(std::move(settings));
}

void Reports::attach_tracker(History::Tracker tracker) {
  const std::lock_guard lock(mutex_);
  history_.attach(std::move(tracker));
}

void Reports::annotate(const void* block, Bytes requested, LaneKey lane, const std::string& text) {
  if (!history_.active() || !annotate_action()) return;
  const Call call(*this, When::ALL);
  const std::lock_guard lock(mutex_);
  History::Entry note = entry(*annotate_action(), number_of(block), asked_locked(block, requested),
                              lane, {0, 0}, pending_context);
  note.user_metadata_ = text;
  history_.add(std::move(note));
}

History::Context Reports::context_of(const void* block) {
  const std::lock_guard lock(mutex_);
  return history_.context_of(block);
}

// --- What the pools tell, under the lock --------------------------------------------------------

History::Entry Reports::entry(Action action, std::size_t address, std::size_t size, LaneKey lane,
                              c10::MempoolId_t pool, History::Context context) const {
  const std::vector<std::string>& regions = compile_contexts();
  return {action,
          static_cast<c10::DeviceIndex>(index_),
          address,
          size,
          lanes_.stream_of(lane),
          pool,
          c10::getApproximateTime(),
          history_.for_entries() ? std::move(context) : nullptr,
          regions.empty() ? "N/A" : regions.back(),
          user_metadata()};
}

// Sizes are rounded in few programs: only those look for what was asked for.
void Reports::served(c10::MempoolId_t pool, const BlockListener::Block& block) noexcept {
  if (!rounds_.load(std::memory_order_relaxed)) [[likely]]
    return note_served(pool, block);
  keep_asked(block.pointer);
  note_served(pool, as_asked(block));
}

void Reports::freed(c10::MempoolId_t pool, const BlockListener::Block& block,
                    bool waiting) noexcept {
  if (!rounds_.load(std::memory_order_relaxed)) [[likely]]
    return note_freed(pool, block, waiting);
  note_freed(pool, as_asked(block), waiting);
  if (!waiting) asked_.erase(block.pointer);
}

void Reports::completed(c10::MempoolId_t pool, const BlockListener::Block& block) noexcept {
  note_completed(pool, as_asked(block));
  asked_.erase(block.pointer);
}

void Reports::keep_asked(const void* block) noexcept {
  if (pending_asked == 0) return;
  try {
    asked_.insert_or_assign(block, pending_asked);
  } catch (const std::bad_alloc&) {  // it counts as rounded
  }
}

BlockListener::Block Reports::as_asked(BlockListener::Block block) const noexcept {
  block.requested = asked_locked(block.pointer, block.requested);
  return block;
}

void Reports::note_served(c10::MempoolId_t pool, const BlockListener::Block& block) noexcept {
  statistics_.served(block);
  if (!history_.active()) [[likely]]
    return;
  history_.keep_context(block.pointer, pending_context);
  history_.add(entry(Action::ALLOC, number_of(block.pointer), block.requested, block.lane, pool,
                     pending_context));
}

void Reports::note_freed(c10::MempoolId_t pool, const BlockListener::Block& block,
                         bool waiting) noexcept {
  statistics_.freed(block, waiting);
  if (!history_.active()) [[likely]]
    return;
  const std::size_t address = number_of(block.pointer);
  // Of the free where that is gathered, else of the request.
  const History::Context context =
      pending_context != nullptr ? pending_context : history_.context_of(block.pointer);
  history_.add(entry(Action::FREE_REQUESTED, address, block.requested, block.lane, pool, context));
  if (waiting) return;
  history_.add(entry(Action::FREE_COMPLETED, address, block.requested, block.lane, pool, context));
  (void)history_.forget_context(block.pointer);
}

void Reports::note_completed(c10::MempoolId_t pool, const BlockListener::Block& block) noexcept {
  statistics_.completed(block);
  if (!history_.active()) [[likely]]
    return;
  history_.add(entry(Action::FREE_COMPLETED, number_of(block.pointer), block.requested, block.lane,
                     pool, history_.forget_context(block.pointer)));
}

void Reports::number_segment(const void* base) noexcept {
  static std::atomic<int> next{0};
  try {
    segment_numbers_.insert_or_assign(base, next.fetch_add(1, std::memory_order_relaxed));
  } catch (const std::bad_alloc&) {  // it cannot be registered
  }
}

void Reports::reserved(c10::MempoolId_t pool, void* base, Bytes size, HeldMemory::Holding holding,
                       int segments) noexcept {
  addresses_.note(base, size, index_);
  statistics_.reserved(pool, size);
  statistics_.count_segments(segments);
  if (holding == HeldMemory::Holding::kReservation) number_segment(base);
  if (history_.active())
    history_.add(entry(
        holding == HeldMemory::Holding::kReservation ? Action::SEGMENT_ALLOC : Action::SEGMENT_MAP,
        number_of(base), size, 0, pool, pending_context));
}

void Reports::releasing(c10::MempoolId_t pool, void* base, Bytes size, HeldMemory::Holding holding,
                        int segments) noexcept {
  statistics_.releasing(pool, size);
  statistics_.count_segments(segments);
  segment_numbers_.erase(base);
  if (history_.active())
    history_.add_and_tell(entry(
        holding == HeldMemory::Holding::kReservation ? Action::SEGMENT_FREE : Action::SEGMENT_UNMAP,
        number_of(base), size, 0, pool, pending_context));
}

// PyTorch has no entry for it: unmapped there and mapped here, so that what is mapped is what is
// held.
void Reports::moved(c10::MempoolId_t pool, void* to, void* from, Bytes size,
                    int segments) noexcept {
  addresses_.note(to, size, index_);
  statistics_.count_segments(segments);
  if (!history_.active()) return;
  history_.add(entry(Action::SEGMENT_UNMAP, number_of(from), size, 0, pool, pending_context));
  history_.add(entry(Action::SEGMENT_MAP, number_of(to), size, 0, pool, pending_context));
}

void PoolListener::served(const Block& block) noexcept { reports_.served(pool_, block); }

void PoolListener::freed(const Block& block, bool waiting) noexcept {
  reports_.freed(pool_, block, waiting);
}

void PoolListener::completed(const Block& block) noexcept { reports_.completed(pool_, block); }

void PoolListener::reserved(void* base, Bytes size, HeldMemory::Holding holding,
                            int segments) noexcept {
  reports_.reserved(pool_, base, size, holding, segments);
}

void PoolListener::releasing(void* base, Bytes size, HeldMemory::Holding holding,
                             int segments) noexcept {
  reports_.releasing(pool_, base, size, holding, segments);
}

void PoolListener::moved(void* to, void* from, Bytes size, int segments) noexcept {
  reports_.moved(pool_, to, from, size, segments);
}

}  // namespace berth::torch
