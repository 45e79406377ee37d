#include "csrc/runtime/arena.h"

#include "csrc/core/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace berth {

Arena::Arena(Device& device, LaneEvents& events, Bytes alignment)
    : device_(device), events_(events), alignment_(alignment) {}

Arena::~Arena() {
  if (base_ != nullptr && !device_.release(base_, range_bytes_).ok()) ++device_errors_;
}

// --- Memory -------------------------------------------------------------------------------------

Status Arena::ensure_range(Bytes bytes) noexcept {
  if (bytes <= range_bytes_) return {};
  if (base_ != nullptr) {
    if (live() != 0 || !strays_.empty() || !pins_.empty())
      return {Status::Code::kFailed, "arena in use"};
    if (device_.properties().asynchronous && !device_.synchronize_all().ok())
      return {Status::Code::kFailed, "synchronize"};
    const Bytes before = range_bytes_;
    const Status released = device_.release(base_, range_bytes_);
    if (!released.ok()) return released;
    base_ = nullptr;
    range_bytes_ = committed_ = 0;
    filling_ = false;
    Status status = reserve_range(bytes);
    // The plan that is served needs its range again: without one it must rest.
    if (!status.ok() && (!reserve_range(before).ok() ||
                         (lookup_ && !dormant_ && !commit(Device::Residency::kResident))))
      rest();
    return status;
  }
  return reserve_range(bytes);
}

Status Arena::reserve_range(Bytes bytes) noexcept {
  const DeviceProperties& properties = device_.properties();
  // Addresses cost nothing where pages are mapped one by one: take as many as any later plan may
  // need.
  Bytes range = align_up(bytes, properties.page_bytes);
  void* base = nullptr;
  Status status;
  if (properties.maps_pages) {
    const Bytes roomy = std::max(range, align_up(properties.total_bytes, properties.page_bytes));
    status = device_.reserve(roomy, std::max<Bytes>(alignment_, properties.page_bytes), &base);
    if (status.ok()) range = roomy;
  }
  if (base == nullptr)
    status = device_.reserve(range, std::max<Bytes>(alignment_, properties.page_bytes), &base);
  if (!status.ok()) return status;
  base_ = static_cast<std::byte*>(base);
  range_bytes_ = range;
  return {};
}

bool Arena::commit(Device::Residency residency) noexcept {
  commit_due_ = false;
  const DeviceProperties& properties = device_.properties();
  const Bytes wanted = align_up(lookup_->plan().arena_bytes, properties.page_bytes);
  if (residency == Device::Residency::kOnDemand && properties.asynchronous &&
      properties.maps_pages) {
    if (wanted > committed_) {
      pages_.assign(wanted / properties.page_bytes, false);  // reserved by activate()
      std::fill_n(pages_.begin(), committed_ / properties.page_bytes, true);
      filling_ = true;
    }
    dormant_ = false;
    recount();
    return true;
  }
  // What is touched later must be there all the same: a program that touches more than there is, is
  // killed.
  Bytes free = 0;
  const bool enough = residency == Device::Residency::kResident || wanted <= committed_ ||
                      !device_.free_bytes(&free).ok() || wanted - committed_ <= free;
  if (!enough) return false;
  if (wanted != 0 && !device_.commit(base_, wanted, residency).ok()) {
    ++device_errors_;
    return false;
  }
  if (wanted < committed_ && !strays_.find_touching({wanted, committed_}) &&
      !pins_.find_touching({wanted, committed_}) &&
      (!device_.properties().asynchronous || device_.synchronize_all().ok())) {
    if (device_.decommit(base_ + wanted, committed_ - wanted).ok()) committed_ = wanted;
  }
  committed_ = std::max(committed_, wanted);
  dormant_ = false;
  recount();
  return true;
}

// While the arena fills: the pages under these bytes.
bool Arena::ensure_pages(ByteRange bytes) noexcept {
  if (!filling_) return true;
  const Bytes page = device_.properties().page_bytes;
  const std::size_t last = (bytes.last + page - 1) / page;
  for (std::size_t first = bytes.first / page; first < last;) {
    if (pages_[first]) {
      ++first;
      continue;
    }
    std::size_t end = first + 1;
    while (end < last && !pages_[end]) ++end;
    const Bytes size = (end - first) * page;
    if (!device_.commit(base_ + first * page, size, Device::Residency::kResident).ok())
      return false;
    std::fill(pages_.begin() + static_cast<std::ptrdiff_t>(first),
              pages_.begin() + static_cast<std::ptrdiff_t>(end), true);
    committed_ += size;
    first = end;
  }
  return true;
}

void Arena::make_resident() noexcept {
  if (dormant_) return;
  const Bytes wanted = filling_ ? pages_.size() * device_.properties().page_bytes : committed_;
  if (wanted == 0) return;
  if (!device_.commit(base_, wanted, Device::Residency::kResident).ok()) {
    ++device_errors_;
    return;  // where it fills, it goes on to
  }
  committed_ = wanted;
  filling_ = false;
  recount();
}

Bytes Arena::retire() noexcept {
  if (live() != 0 || !strays_.empty() || committed_ == 0 || !pins_.empty()) return 0;
  if (device_.properties().asynchronous && !device_.synchronize_all().ok()) return 0;
  const Bytes reach = filling_ ? pages_.size() * device_.properties().page_bytes : committed_;
  if (!device_.decommit(base_, reach).ok()) {
    ++device_errors_;
    return 0;
  }
  filling_ = false;
  dormant_ = lookup_ != nullptr;
  recount();
  return std::exchange(committed_, 0);
}

// --- Plans --------------------------------------------------------------------------------------

Status Arena::activate(std::shared_ptr<const PlanLookup> plan, bool at_step_start) {
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
  strays_.reserve(strays_.size() + cells_.size() + cells.size());
  // What a plan before this one had only in part becomes whole, so that a prefix says what is
  // there.
  if (filling_) make_resident();
  if (filling_) return {Status::Code::kOutOfMemory, "commit"};
  pages_.reserve(plan->plan().arena_bytes / device_.properties().page_bytes + 1);
  const std::shared_ptr<const PlanLookup> before = lookup_;
  const bool was_dormant = dormant_;

  rest();
  lookup_ = std::move(plan);
  entries_ = &lookup_->entry(0);
  paths_ = std::move(paths);
  roots_ = std::move(roots);
  cells_ = std::move(cells);
  unplanned_slots_ = 0;
  for (PlanLookup::SlotIndex slot = 0; slot < lookup_->slot_count(); ++slot) {
    unplanned_slots_ += entries_[slot].cell == PlanLookup::kNone;
  }
  dormant_ = true;
  if (!at_step_start && !commit(Device::Residency::kResident)) {
    rest();
    if (before && activate(before, true).ok() && !was_dormant) {
      // Its memory is as it was, unless a larger range took its place; else it waits for a step's
      // start.
      const bool whole = committed_ >= before->plan().arena_bytes;
      if (whole || commit(Device::Residency::kResident)) dormant_ = false;
      recount();
    }
    return {Status::Code::kOutOfMemory, "commit"};
  }
  // Other lanes than the one that had them wait for what was queued on these bytes before.
  if (device_.properties().asynchronous) {
    for (const auto& lane : lanes_) {
      if (!guards_.add({0, range_bytes_}, lane->key, Guards::Binds::kAll)) {
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
  dormant_ = commit_due_ = false;
  fast_lane_ = nullptr;
  for (const auto& lane : lanes_) lane->mode = Lane::Mode::kUnbound;
  recount();
}

void Arena::recount() noexcept {
  attention_ = static_cast<std::uint32_t>(strays_.size() + pins_.size() + guards_.binding_all()) +
               (dormant_ ? 1 : 0) + (filling_ ? 1 : 0);
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
  const std::size_t attention = strays_.size() + pins_.size() + guards_.binding_all() +
                                (dormant_ ? 1 : 0) + (filling_ ? 1 : 0);
  if (attention != attention_)
    return fmt::format("attention is {}, a walk finds {}", attention_, attention);
  return {};
}

}  // namespace berth
