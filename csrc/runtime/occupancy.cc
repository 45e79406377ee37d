#include "csrc/runtime/occupancy.h"

#include <fmt/format.h>

#include <utility>

namespace berth {

void Occupancy::follow(const PlanLookup& lookup, std::vector<Cell> cells) noexcept {
  lookup_ = &lookup;
  entries_ = &lookup.entry(0);
  cells_ = std::move(cells);
}

void Occupancy::forget_plan() noexcept {
  for (const auto& [first, stray] : strays_) strays_.find(first)->within = false;
  cells_.clear();
  live_shared_.clear();
  lookup_ = nullptr;
  entries_ = nullptr;
}

void Occupancy::put(SlotIndex slot, Bytes size, std::uint64_t id, bool all_there) {
  const PlanLookup::Entry& entry = entries_[slot];
  // mutant: shared-noted
  if (entry.shared) live_shared_.insert({entry.offset, entry.offset + size}, 0);
  cells_[entry.cell] = {slot, !all_there, id};
  if (!all_there) make_stray(entry.cell);
}

void Occupancy::make_stray(CellIndex index) noexcept {
  Cell& cell = cells_[index];
  if (cell.slot & kOffSchedule) return;
  const PlanLookup::Entry& entry = entries_[cell.slot];
  strays_.insert({entry.offset, entry.offset + rounded(entry.requested)},
                 Stray{index, {}, Use::kLive});
  cell.slot |= kOffSchedule;
  ++attention_;
}

void Occupancy::remove_stray(Bytes offset) noexcept {
  // mutant: bucket-left-kept
  left_ -= strays_.find(offset)->left;
  strays_.erase(offset);
  --attention_;
}

// The block goes on as a byte range: it is off schedule whatever becomes of the plan.
void Occupancy::outlive(CellIndex index, LaneKey owner) noexcept {
  Cell& cell = cells_[index];
  make_stray(index);
  const PlanLookup::Entry& entry = entries_[cell.slot & ~kOffSchedule];
  *strays_.find(entry.offset) =
      Stray{PlanLookup::kNone, {entry.requested, cell.id, owner}, Use::kLive};
  if (entry.shared) live_shared_.erase(entry.offset);
  clear(index);
}

void Occupancy::hand_over(const std::vector<std::uint32_t>& sequences, std::uint32_t position,
                          LaneKey owner) noexcept {
  for (const auto& [first, stray] : strays_) {
    if (stray.second.cell != PlanLookup::kNone) outlive(stray.second.cell, owner);
    strays_.find(first)->within = false;
  }
  for_each_alive(sequences, position, [&](CellIndex index) { outlive(index, owner); });
}

Occupancy::Taken Occupancy::take_found(Bytes offset, const Block& block) noexcept {
  Taken taken{.found = true, .block = block};
  const CellIndex index = cell_at(offset);
  taken.planned = index != PlanLookup::kNone;
  taken.off_schedule = !taken.planned || (cells_[index].slot & kOffSchedule) != 0;
  if (!taken.planned) taken.within = strays_.find(offset)->within;
  if (taken.off_schedule) remove_stray(offset);
  if (taken.planned) {
    taken.shared = entries_[cells_[index].slot & ~kOffSchedule].shared != 0;
    if (taken.shared) live_shared_.erase(offset);
    if (cells_[index].partly) taken.off_schedule = false;
    clear(index);
  }
  return taken;
}

void Occupancy::put_within(ByteRange bytes, const Block& block, Bytes left) noexcept {
  strays_.insert(bytes, Stray{PlanLookup::kNone, block, Use::kLive, true, left});
  left_ += left;
  ++attention_;
}

void Occupancy::lend(ByteRange bytes, const Block& block) noexcept {
  strays_.insert(bytes, Stray{PlanLookup::kNone, block, Use::kLive});
  ++attention_;
}

void Occupancy::give_away(ByteRange bytes, LaneKey lane) noexcept {
  strays_.insert(bytes, Stray{PlanLookup::kNone, {bytes.size(), 0, lane}, Use::kAway});
  ++attention_;
}

std::optional<Occupancy::Away> Occupancy::take_away_back(Bytes first) noexcept {
  const Stray* const stray = strays_.find(first);
  if (stray == nullptr || stray->use != Use::kAway) return std::nullopt;
  const Away away{first + stray->block.requested, stray->block.lane};
  remove_stray(first);
  return away;
}

void Occupancy::lose(ByteRange bytes, const Block& block) {
  strays_.insert(bytes, Stray{PlanLookup::kNone, block, Use::kLost});
  ++attention_;
}

void Occupancy::synchronized() noexcept {
  for (auto it = strays_.begin(); it != strays_.end();) {
    const Bytes offset = it->first;
    const bool lost = it->second.second.use == Use::kLost;
    ++it;
    if (lost) remove_stray(offset);
  }
}

Bytes Occupancy::live() const noexcept {
  Bytes bytes = 0;
  for_each_block([](SlotIndex) { return LaneKey{0}; },
                 [&](ByteRange range, const Block&, Use use) {
                   bytes += use == Use::kLive ? range.size() : 0;
                 });
  return bytes;
}

std::string Occupancy::is_valid() const {
  std::size_t planned_strays = 0;
  IntervalMap<int> all;
  for (CellIndex index = 0; index < cells_.size(); ++index) {
    const Cell& cell = cells_[index];
    if (cell.empty()) continue;
    const SlotIndex slot = cell.slot & ~kOffSchedule;
    const PlanLookup::Entry& entry = entries_[slot];
    if (entry.cell != index)
      return fmt::format("cell {} holds slot {} of cell {}", index, slot, entry.cell);
    if (!all.insert({entry.offset, entry.offset + rounded(entry.requested)}, 0))
      return fmt::format("slot {} at {} overlaps another live block", slot, entry.offset);
    const Stray* const stray = strays_.find(entry.offset);
    const bool off = (cell.slot & kOffSchedule) != 0;
    if (off != (stray != nullptr && stray->cell == index))
      return fmt::format("slot {} and the off-schedule set disagree", slot);
    if (cell.partly && !off) return fmt::format("slot {} lacks memory on schedule", slot);
    planned_strays += off;
  }
  for (const auto& [offset, stray] : strays_) {
    if (stray.second.cell != PlanLookup::kNone) {
      --planned_strays;
    } else if (!all.insert({offset, stray.first}, 0)) {
      return fmt::format("what is off schedule at {} overlaps a live block", offset);
    }
  }
  if (planned_strays != 0) return "the off-schedule set names cells that hold none";
  return {};
}

}  // namespace berth
