#include "csrc/runtime/fallback.h"

#include "csrc/runtime/exhaustion.h"

#include <berth/error.h>

#include <algorithm>
#include <utility>

namespace berth {

void* Fallback::allocate(Bytes size, LaneKey lane, trace::Tag tag, std::uint64_t id) {
  const Mobility kind = mobility_.classify(size, lane, tag);
  store_.forget_failure();
  if (void* const lent = borrow_first(size, lane, id)) return lent;
  PoolBlock* block = pool_.allocate(size, lane, kind, growth_);
  if (block == nullptr) block = search_ordered(size, lane, kind);
  // Where there was no plan, segments stay: a captured graph may use them. Pages that have several
  // addresses serve pool and arena alike.
  if (block == nullptr && !store_.properties().aliases && store_.has_target() &&
      !events_.captured()) {
    // mutant: plain-empty-arena
    if (arena_.idle() && arena_.give_back() != 0) block = pool_.allocate(size, lane, kind);
    // Below that a segment costs little.
    constexpr Bytes kLeastBorrowed = Bytes{1} << 20;
    // mutant: plain-borrows
    if (block == nullptr && size >= kLeastBorrowed)
      if (void* const lent =
              borrow({Spare::kLong, Spare::kSoon, Spare::kNow}, size, lane, id, kMaxBytes))
        return lent;
    // mutant: plain-idle-goes
    if (block == nullptr) block = search_idle(size, lane, kind, id);
  }
  if (block == nullptr) {
    // mutant: target-final
    const PageStore::Exceeding exceeding(store_);
    // mutant: target-least
    block = pool_.allocate(size, lane, kind, Pool::Growth::kLeast);
    if (block == nullptr) block = search_everywhere(size, lane, kind);
    // The plan's next request there misses, which is better than that this one fails.
    // mutant: lent-last
    if (block == nullptr && !events_.captured())
      if (void* const lent = borrow({Spare::kAny}, size, lane, id, kMaxBytes)) return lent;
  }
  if (block == nullptr) {
    // A driver that refuses is no lack of memory.
    const Status failure = store_.failure();
    if (!failure.ok())
      throw Error(ErrorKind::kSystem, exhaustion(size, lane, store_.describe(failure)));
    throw OutOfMemory(exhaustion(size, lane, {}));
  }
  hand_out(block, size, tag, id);
  return block->pointer;
}

// Before the pool makes a block of pages that the arena lends: bytes of the arena take no call of
// the device, and the rest of a page stays of use there. Where no more should be held they may not
// leave much of a page that serves nobody.
void* Fallback::borrow_first(Bytes size, LaneKey lane, std::uint64_t id) noexcept {
  const Bytes page = store_.properties().page_bytes;
  if (!store_.properties().aliases || events_.captured() || !pool_.lacks(size, lane))
    return nullptr;
  const bool grows = pool_.may_grow(std::max(size, page), size);
  // Less than a page fills what others leave of theirs.
  // mutant: target-small
  if (size < page)
    return grows ? nullptr
                 : borrow({Spare::kThisStep, Spare::kLong, Spare::kSoon, Spare::kNow}, size, lane,
                          id, kMaxBytes);
  // mutant: pages-rest
  if (!arena_.astray(Lending::kFewMisses)) return nullptr;
  const Bytes most_left =
      grows || growth_ == Pool::Growth::kFree ? kMaxBytes : size / Arena::kMostLeft;
  if (void* const lent = borrow({Spare::kThisStep}, size, lane, id, most_left)) return lent;
  if (grows) return nullptr;
  if (void* const lent = borrow({Spare::kLong}, size, lane, id, most_left)) return lent;
  // What the slots of another step than the plan's need next is no loss.
  if (!arena_.astray(Lending::kManyMisses)) return nullptr;
  return borrow({Spare::kSoon, Spare::kNow}, size, lane, id, most_left);
}

void* Fallback::borrow(std::initializer_list<Spare> spares, Bytes size, LaneKey lane,
                       std::uint64_t id, Bytes most_left) noexcept {
  const Arena::Outcome lent = arena_.lend_spare(spares, size, lane, id, most_left);
  if (lent.pointer != nullptr) counters_.handed_out(lent.size, size);
  return lent.pointer;
}

// What is idle goes before more is held than ever was: pages of the arena, or segments of other
// sizes. Pages come back with system calls, and segments wait for the device: so a few times after
// each change of plan, then at growing distances.
PoolBlock* Fallback::search_idle(Bytes size, LaneKey lane, Mobility kind,
                                 std::uint64_t id) noexcept {
  constexpr std::uint64_t kDistance = 1024;  // requests
  constexpr unsigned kAtOnce = 8, kMostDoublings = 20;
  if (arena_.plan().get() != idle_plan_) idle_searches_ = 0;
  idle_plan_ = arena_.plan().get();
  if (idle_searches_ == 0) idle_from_ = 0;
  const bool maps = store_.properties().maps_pages;
  if (id < idle_from_ || (!maps && pool_.idle() == 0)) return nullptr;
  if (++idle_searches_ > kAtOnce)
    idle_from_ = id + (kDistance << std::min(idle_searches_ - kAtOnce, kMostDoublings));
  // mutant: host-idle-goes
  const Bytes given = maps ? arena_.give_back() : pool_.trim();
  return given == 0 ? nullptr : pool_.allocate(size, lane, kind);
}

PoolBlock* Fallback::allocate_at(void* pointer, Bytes size, LaneKey lane,
                                 std::uint64_t id) noexcept {
  PoolBlock* const block = pool_.allocate_at(pointer, align_up(size, options_.alignment), lane);
  if (block == nullptr) return nullptr;
  block->requested = size;
  hand_out(block, size, 0, id);
  return block;
}

void Fallback::hand_out(PoolBlock* block, Bytes size, trace::Tag tag, std::uint64_t id) noexcept {
  block->id = id;
  block->born = mobility_.now();
  block->tag = tag;
  counters_.handed_out_by_pool(align_up(size, options_.alignment), size);
  counters_.count(block->mobility);
}

void Fallback::free(PoolBlock* block, std::optional<LaneKey> freeing) noexcept {
  const Bytes size = align_up(block->requested, options_.alignment);
  counters_.taken_back_by_pool(size, block->requested);
  mobility_.learn(block->requested, block->lane, block->tag, block->born);
  const bool waits = pool_.waits(block, freeing);
  if (options_.listener != nullptr)
    options_.listener->freed({block->pointer, block->requested, size, block->lane}, waits);
  pool_.free(block, freeing);
}

// What should be held is held: events, and lanes that wait for lanes, but no wait of the host.
PoolBlock* Fallback::search_ordered(Bytes size, LaneKey lane, Mobility kind) noexcept {
  if (events_.captured()) return nullptr;
  if (pool_.process_events() != 0) {
    if (PoolBlock* block = pool_.allocate(size, lane, kind)) return block;
  }
  while (pool_.order_waiting() != 0)
    if (PoolBlock* block = pool_.allocate(size, lane, kind)) return block;
  return nullptr;
}

// Memory is exhausted: a synchronisation, and memory that is nobody's at the device.
PoolBlock* Fallback::search_everywhere(Bytes size, LaneKey lane, Mobility kind) noexcept {
  // mutant: s13-search
  if (events_.captured()) return nullptr;
  if (!events_.synchronize()) return nullptr;
  arena_.synchronized();
  pool_.process_events();
  if (PoolBlock* block = pool_.allocate(size, lane, kind)) return block;
  // mutant: pages-single
  const bool smaller = pool_.grow_by_pages();
  // mutant: pages-refused
  Bytes given = arena_.give_back();
  if (options_.free_pages != Allocator::FreePages::kStay) given += pool_.trim();
  return given == 0 && !smaller ? nullptr : pool_.allocate(size, lane, kind);
}

std::string Fallback::exhaustion(Bytes size, LaneKey lane, std::string failure) {
  const DeviceProperties& device = store_.properties();
  Exhaustion report(device.page_bytes);
  report.failure = std::move(failure);
  report.asked = size;
  report.lane = lane;
  report.device = device.name;
  report.limit = store_.limit();
  report.total = device.total_bytes;
  report.reserved = arena_.committed() + pool_.reserved();
  report.live = counters_.live;
  report.planned_live = counters_.planned_live();
  report.plan_arena = arena_.plan() ? arena_.plan()->plan().arena_bytes : 0;
  report.arena_held = arena_.committed();
  if (!store_.free_bytes(&report.left).ok()) ++counters_.device_errors;
  pool_.for_each_block(
      [&](const PoolBlock& block) { report.add_block(block.size, block.requested, block.tag); });
  pool_.for_each_stretch([&](const Stretch& stretch) { report.add(stretch, false); });
  for (const Stretch& stretch : arena_.stretches()) report.add(stretch, true);
  return report.text();
}

}  // namespace berth
