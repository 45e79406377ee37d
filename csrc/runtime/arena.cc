#include "csrc/runtime/arena.h"

#include "csrc/core/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace berth {

Arena::Arena(Device& device, LaneEvents& events, Bytes alignment)
    : device_(device), events_(events), alignment_(alignment), memory_(device, alignment) {}

Arena::~Arena() = default;

// --- Memory -------------------------------------------------------------------------------------

Status Arena::ensure_range(Bytes bytes) noexcept {
  if (bytes <= memory_.range_bytes()) return {};
  if (memory_.base() == nullptr) return memory_.reserve(bytes);
  if (live() != 0 || !strays_.empty() || !pins_.empty())
    return {Status::Code::kFailed, "arena in use"};
  if (device_.properties().asynchronous && !device_.synchronize_all().ok())
    return {Status::Code::kFailed, "synchronize"};
  const Bytes before = memory_.range_bytes();
  const bool there = lookup_ && !memory_.asleep();
  const Status status = memory_.reserve(bytes);
  // The plan that is served needs its range again: without one it must rest.
  if (!status.ok() && memory_.base() == nullptr &&
      (!memory_.reserve(before).ok() || (there && !commit(Device::Residency::kResident))))
    rest();
  return status;
}

bool Arena::commit(Device::Residency residency) noexcept {
  const bool committed = memory_.commit(residency, [this](ByteRange bytes) {
    return strays_.find_touching(bytes) || pins_.find_touching(bytes);
  });
  recount();
  return committed;
}

void Arena::make_resident() noexcept {
  memory_.make_resident();
  recount();
}

Bytes Arena::retire() noexcept {
  if (live() != 0 || !strays_.empty() || memory_.committed() == 0 || !pins_.empty()) return 0;
  if (device_.properties().asynchronous && !device_.synchronize_all().ok()) return 0;
  const Bytes given = memory_.retire();
  recount();
  return given;
}

// --- Plans --------------------------------------------------------------------------------------

Status Arena::activate(std::shared_ptr<const PlanLookup> plan, Commit when) {
  const Status ranged = ensure_range(plan->plan().arena_bytes);
  if (!ranged.ok()) return ranged;
  // All that may throw comes first.
  std::vector<Path> paths;
  std::vector<std::uint32_t> roots(plan->plan().lane_keys.size(), PlanLookup::kNone);
  for (std::uint32_t s = 0; s < plan->plan().sequences.size(); ++s) {
    paths.emplace_back(*plan, s);
    if (plan->plan().sequences[s].parent < 0) roots[plan->plan().sequences[s].lane] = s;
  }
  std::vector<Cell> cells(plan->cell_count());
  std::vector<ByteRange> pages = memory_.pages_under(plan->covered());
  strays_.reserve(strays_.size() + cells_.size() + cells.size());
  const std::shared_ptr<const PlanLookup> before = lookup_;
  const bool was_asleep = memory_.asleep();

  rest();
  memory_.plan(std::move(pages));
  lookup_ = std::move(plan);
  entries_ = &lookup_->entry(0);
  first_surprise_.reset();
  paths_ = std::move(paths);
  roots_ = std::move(roots);
  cells_ = std::move(cells);
  unplanned_slots_ = 0;
  for (PlanLookup::SlotIndex slot = 0; slot < lookup_->slot_count(); ++slot) {
    unplanned_slots_ += entries_[slot].cell == PlanLookup::kNone;
  }
  if (when == Commit::kNow && !commit(Device::Residency::kResident)) {
    rest();
    // Its memory is as it was, unless a larger range took its place; where that cannot be had it
    // waits for a step's start.
    if (before && activate(before, Commit::kAtStepStart).ok() && !was_asleep)
      (void)commit(Device::Residency::kResident);
    return {Status::Code::kOutOfMemory, "commit"};
  }
  // Other lanes than the one that had them wait for what was queued on these bytes before.
  if (device_.properties().asynchronous) {
    for (const auto& lane : lanes_) {
      if (!guards_.add({0, memory_.range_bytes()}, lane->key, Guards::Binds::kAll)) {
        const Status drained = device_.synchronize_all();
        if (!drained.ok()) ++device_errors_;
      }
    }
  }
  for (const auto& lane : lanes_) {
    lane->mode = Lane::Mode::kUnbound;
    const auto& keys = lookup_->plan().lane_keys;
    const auto key = std::find(keys.begin(), keys.end(), lane->key);
    if (key != keys.end()) bind(*lane, static_cast<std::uint32_t>(key - keys.begin()));
  }
  recount();
  return {};
}

void Arena::rest() noexcept {
  if (!lookup_) return;
  // Live blocks of the plan go on as byte ranges: a range outlives its plan.
  for (PlanLookup::CellIndex index = 0; index < cells_.size(); ++index) {
    const Cell& cell = cells_[index];
    if (cell.slot == PlanLookup::kNone) continue;
    const PlanLookup::SlotIndex slot = cell.slot & ~kOffSchedule;
    const PlanLookup::Entry& entry = entries_[slot];
    const LaneKey owner = owner_of(slot);
    if (cell.slot & kOffSchedule) strays_.erase(entry.offset);
    strays_.insert({entry.offset, entry.offset + rounded(entry.requested)},
                   Stray{PlanLookup::kNone, entry.requested, owner, cell.id, false});
  }
  cells_.clear();
  live_shared_.clear();
  paths_.clear();
  roots_.clear();
  lookup_.reset();
  entries_ = nullptr;
  gaps_ = {};
  memory_.forget_plan();
  fast_lane_ = nullptr;
  for (const auto& lane : lanes_) lane->mode = Lane::Mode::kUnbound;
  recount();
}

void Arena::recount() noexcept {
  attention_ = static_cast<std::uint32_t>(strays_.size() + pins_.size() + guards_.binding_all()) +
               (memory_.ready() ? 0 : 1);
}

// --- Self-check ---------------------------------------------------------------------------------

Bytes Arena::live() const noexcept {
  Bytes live = 0;
  for (const Cell& cell : cells_) {
    if (cell.slot != PlanLookup::kNone)
      live += rounded(entries_[cell.slot & ~kOffSchedule].requested);
  }
  for (const auto& [offset, stray] : strays_) {
    if (stray.second.cell == PlanLookup::kNone && !stray.second.freed) live += stray.first - offset;
  }
  return live;
}

std::string Arena::is_valid() const {
  std::size_t planned_strays = 0;
  IntervalMap<int> all;
  for (PlanLookup::CellIndex index = 0; index < cells_.size(); ++index) {
    const Cell& cell = cells_[index];
    if (cell.slot == PlanLookup::kNone) continue;
    const PlanLookup::SlotIndex slot = cell.slot & ~kOffSchedule;
    const PlanLookup::Entry& entry = entries_[slot];
    if (entry.cell != index)
      return fmt::format("cell {} holds slot {} of cell {}", index, slot, entry.cell);
    const ByteRange bytes{entry.offset, entry.offset + rounded(entry.requested)};
    if (!all.insert(bytes, 0))
      return fmt::format("slot {} at {} overlaps another live block", slot, bytes.first);
    const Stray* stray = strays_.find(entry.offset);
    const bool off = (cell.slot & kOffSchedule) != 0;
    if (off != (stray != nullptr && stray->cell == index))
      return fmt::format("slot {} and the strays disagree", slot);
    planned_strays += off;
  }
  for (const auto& [offset, stray] : strays_) {
    if (stray.second.cell != PlanLookup::kNone) {
      --planned_strays;
      continue;
    }
    if (!all.insert({offset, stray.first}, 0))
      return fmt::format("stray at {} overlaps a live block", offset);
  }
  if (planned_strays != 0) return "strays name cells that hold none";
  const std::size_t attention =
      strays_.size() + pins_.size() + guards_.binding_all() + (memory_.ready() ? 0 : 1);
  if (attention != attention_)
    return fmt::format("attention is {}, a walk finds {}", attention_, attention);
  return {};
}

}  // namespace berth
