#include "csrc/runtime/arena.h"

#include <algorithm>
#include <new>
#include <utility>

// How an arena takes blocks back, and what other lanes wait for before they have the bytes.
namespace berth {

Arena::Freed Arena::free_slowly(Bytes offset, std::optional<LaneKey> freeing) noexcept {
  Freed freed;
  LaneKey owner = 0;
  bool shared = false, unplanned = false;
  const PlanLookup::CellIndex index = lookup_ ? lookup_->cell_at(offset) : PlanLookup::kNone;
  if (index != PlanLookup::kNone && cells_[index].slot != PlanLookup::kNone) {
    Cell& cell = cells_[index];
    const PlanLookup::SlotIndex slot = cell.slot & ~kOffSchedule;
    const PlanLookup::Entry& entry = entries_[slot];
    freed.late = (cell.slot & kOffSchedule) != 0;
    if (freed.late) strays_.erase(offset);
    if (entry.shared) live_shared_.erase(offset);
    shared = entry.shared != 0;
    owner = owner_of(slot);
    freed.requested = entry.requested;
    freed.id = cell.id;
    cell.slot = PlanLookup::kNone;
  } else {
    const Stray* stray = strays_.find(offset);
    if (stray == nullptr || stray->freed) return freed;
    freed.requested = stray->requested;
    freed.id = stray->id;
    freed.late = true;
    owner = stray->owner;
    unplanned = true;  // of an earlier plan, or lent: any lane may be next to have the bytes
    strays_.erase(offset);
  }
  freed.found = true;
  freed.owner = owner;
  freed.size = rounded(freed.requested);

  // Record first, let go after: the event must cover all work queued before the bytes count as
  // free.
  const ByteRange bytes{offset, offset + freed.size};
  bool guarded = true;
  if (freeing && *freeing != owner) guarded &= guards_.add(bytes, *freeing, Guards::Binds::kAll);
  if (const auto uses = uses_.find(offset); uses != uses_.end()) {
    for (const LaneKey lane : uses->second)
      guarded &= guards_.add(bytes, lane, Guards::Binds::kAll);
    uses_.erase(uses);
  }
  if (unplanned) guarded &= guards_.add(bytes, owner, Guards::Binds::kAll);
  if (shared) guarded &= guards_.add(bytes, owner, Guards::Binds::kShared);
  if (!guarded) {
    freed.device_error = true;
    strays_.insert(bytes, Stray{PlanLookup::kNone, freed.requested, owner, freed.id, true});
  }
  recount();
  return freed;
}

void Arena::poll_guards() noexcept {
  events_.poll_all();
  guards_.let_go();
  recount();
}

void Arena::synchronized() noexcept {
  events_.all_reached();
  guards_.let_go();
  for (auto it = strays_.begin(); it != strays_.end();) {
    const Bytes offset = it->first;
    const bool done = it->second.second.freed;
    ++it;
    if (done) strays_.erase(offset);
  }
  recount();
}

// Where no mark comes guards go by the requests that they slow down, a few at each.
void Arena::tend_guards() noexcept {
  if (guards_.empty()) return;
  events_.poll_for_request();
  guards_.let_go_of_some();
  recount();
}

// The lane that serves the slot's requests now, or, where none does, the one that they were
// recorded on.
LaneKey Arena::owner_of(PlanLookup::SlotIndex slot) const noexcept {
  const std::uint32_t plan_lane = lookup_->plan().sequences[lookup_->sequence_of(slot)].lane;
  for (const auto& lane : lanes_) {
    if (lane->mode != Lane::Mode::kUnbound && lane->plan_lane == plan_lane) return lane->key;
  }
  return lookup_->plan().lane_keys[plan_lane];
}

void Arena::record_use(const void* pointer, LaneKey key) {
  const Bytes offset = offset_of(pointer);
  const PlanLookup::CellIndex cell = lookup_ ? lookup_->cell_at(offset) : PlanLookup::kNone;
  if (cell != PlanLookup::kNone && cells_[cell].slot != PlanLookup::kNone &&
      owner_of(cells_[cell].slot & ~kOffSchedule) == key)
    return;
  const std::optional<Block> block = find(pointer);
  if (!block) return;
  std::vector<LaneKey>& lanes = uses_[offset];
  if (std::find(lanes.begin(), lanes.end(), key) == lanes.end()) lanes.push_back(key);
}

std::optional<Arena::Block> Arena::find(const void* pointer) const noexcept {
  const Bytes offset = offset_of(pointer);
  const PlanLookup::CellIndex index = lookup_ ? lookup_->cell_at(offset) : PlanLookup::kNone;
  if (index != PlanLookup::kNone && cells_[index].slot != PlanLookup::kNone) {
    const PlanLookup::SlotIndex slot = cells_[index].slot & ~kOffSchedule;
    return Block{entries_[slot].requested, cells_[index].id, owner_of(slot)};
  }
  const Stray* stray = strays_.find(offset);
  if (stray == nullptr || stray->freed) return std::nullopt;
  return Block{stray->requested, stray->id, stray->owner};
}

std::vector<PoolStretch> Arena::stretches() const {
  using Piece = PoolStretch::Piece;
  std::vector<Piece> blocks;
  const auto add = [&](Bytes offset, Bytes requested, LaneKey lane, bool live) {
    blocks.push_back({memory_.base() + offset, rounded(requested), requested, lane,
                      live ? Piece::Kind::kLive : Piece::Kind::kWaiting});
  };
  for (const Cell& cell : cells_) {
    if (cell.slot == PlanLookup::kNone) continue;
    const PlanLookup::SlotIndex slot = cell.slot & ~kOffSchedule;
    add(entries_[slot].offset, entries_[slot].requested, owner_of(slot), true);
  }
  for (const auto& [offset, stray] : strays_) {
    const Stray& block = stray.second;
    if (block.cell == PlanLookup::kNone) add(offset, block.requested, block.owner, !block.freed);
  }
  std::sort(blocks.begin(), blocks.end(),
            [](const Piece& a, const Piece& b) { return a.pointer < b.pointer; });
  std::vector<PoolStretch> result;
  auto block = blocks.begin();
  for (const ByteRange bytes : memory_.stretches()) {
    PoolStretch stretch{memory_.base() + bytes.first, bytes.size(), {}};
    const std::byte* at = memory_.base() + bytes.first;
    const std::byte* const end = memory_.base() + bytes.last;
    const auto hole = [&](const std::byte* until) {
      if (at < until)
        stretch.pieces.push_back({at, static_cast<Bytes>(until - at), 0, 0, Piece::Kind::kHole});
    };
    for (; block != blocks.end() && block->pointer < end; ++block) {
      hole(static_cast<const std::byte*>(block->pointer));
      stretch.pieces.push_back(*block);
      at = static_cast<const std::byte*>(block->pointer) + block->size;
    }
    hole(end);
    result.push_back(std::move(stretch));
  }
  return result;
}

bool Arena::pin(const void* pointer) {
  const std::optional<Block> block = find(pointer);
  if (!block) return false;
  const Bytes offset = offset_of(pointer);
  if (std::uint32_t* const times = pins_.find(offset)) {
    ++*times;
    return true;
  }
  // What is pinned is nobody else's, so that pins are as disjoint as live blocks are.
  pins_.insert({offset, offset + rounded(block->requested)}, 1);
  recount();
  return true;
}

bool Arena::unpin(const void* pointer) noexcept {
  const Bytes offset = offset_of(pointer);
  std::uint32_t* const times = pins_.find(offset);
  if (times == nullptr) return false;
  if (--*times != 0) return true;
  pins_.erase(offset);
  recount();
  return true;
}

}  // namespace berth
