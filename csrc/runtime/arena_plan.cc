#include "csrc/core/byte_ranges.h"
#include "csrc/runtime/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

// How an arena takes up plans, passes marks and comes by its memory.
namespace berth {

Arena::Arena(Device& device, LaneEvents& events, Bytes alignment, PageSource* source)
    : device_(device),
      events_(events),
      memory_(device, source, alignment),
      occupancy_(alignment, attention_),
      lending_(occupancy_, pins_, walk_, alignment) {}

// --- Plans
// ----------------------------------------------------------------------------------------

Status Arena::activate(std::shared_ptr<const PlanLookup> plan, Pages when) {
  // All that may throw comes first, then what may fail.
  Walk::Paths paths(*plan);
  Lanes lanes(*plan);
  std::vector<Occupancy::Cell> cells(plan->cell_count());
  std::vector<ByteRange> pages = memory_.pages_under(plan->covered());
  occupancy_.reserve(occupancy_.cells().size() + cells.size());
  for (const auto& [key, lane] : lanes_.all()) {
    // mutant: s5-new-plan
    if (!fence(*lane)) return {Status::Code::kFailed, "synchronize"};
  }
  const Status ranged = ensure_range(plan->plan().arena_bytes);
  if (!ranged.ok()) return ranged;
  const std::shared_ptr<const PlanLookup> before = lookup_;

  forget_spared();
  deactivate();
  lookup_ = std::move(plan);
  entries_ = &lookup_->entry(0);
  memory_.plan(std::move(pages));
  occupancy_.follow(*lookup_, std::move(cells));
  walk_.follow(*lookup_, std::move(paths));
  lending_.follow(*lookup_);
  lanes_ = std::move(lanes);
  for (const auto& [key, lane] : lanes_.all()) walk_.start(*lane);
  memory_changed();
  leftover_ = true;
  // Elsewhere they are lent to whoever needs them, or go at a mark.
  if (!device_.properties().aliases) (void)give_back_leftover();
  recount();
  if (when == Pages::kNow && !fill(true)) {
    deactivate();
    if (before) (void)activate(before, Pages::kAsUsed);
    return {Status::Code::kOutOfMemory, "commit"};
  }
  return {};
}

// Other lanes than the one that had them wait for what was queued on these bytes before. False
// where that cannot be known: then they stay that one's.
bool Arena::fence(const Lane& lane) noexcept {
  if (!lane.used || !device_.properties().asynchronous) return true;
  const bool guarded = guards_.add({0, memory_.range_bytes()}, lane.key, Guards::Binds::kAll);
  recount();
  return guarded || events_.synchronize();
}

void Arena::deactivate() noexcept {
  forget_spared();
  if (!lookup_) return;
  // Live blocks of the plan go on as byte ranges: a range outlives its plan.
  occupancy_.leave(owner());
  walk_.leave();
  outgrown_.reset();
  memory_.forget_plan();
  lookup_.reset();
  entries_ = nullptr;
  fast_lane_ = nullptr;
  looks_left_ = 0;
  recount();
}

// --- Marks
// ----------------------------------------------------------------------------------------

bool Arena::mark(LaneKey key) {
  forget_spared();
  // mutant: s12-mark
  poll_guards();
  if (!lookup_) return false;
  Lane* marking = lanes_.find(key);
  if (marking == nullptr && lanes_.lone() != nullptr) marking = take_over(key);
  bool jumped = false;
  for (const auto& [other, lane] : lanes_.all()) {
    jumped |= walk_.mark(*lane);
  }
  if (marking != nullptr) {
    marking->used = true;
    select(*marking);
  }
  return jumped;
}

// The step moved to another thread or stream than it was served to. What that one left live or
// queued is not this one's: as after a change of plan. Null where the device fails: then the step
// stays that one's.
Lane* Arena::take_over(LaneKey key) {
  Lane& lane = *lanes_.lone();
  occupancy_.reserve(occupancy_.cells().size());
  const Lane before = lane;
  // mutant: s5-moved
  if (!fence(before)) return nullptr;
  lanes_.serve_to(lane, key);
  // mutant: x-moved
  occupancy_.hand_over(walk_.sequences(before), before.position, before.key);
  walk_.start(lane);
  fast_lane_ = nullptr;
  recount();
  return &lane;
}

bool Arena::aligned(LaneKey key) const noexcept {
  const Lane* const lane = lookup_ ? lanes_.find(key) : nullptr;
  return lane != nullptr && lane->mode == Lane::Mode::kAligned;
}

bool Arena::entered() const noexcept {
  const auto& lanes = lanes_.all();
  return std::any_of(lanes.begin(), lanes.end(),
                     [](const auto& one) { return one.second->entered; });
}

bool Arena::astray(std::uint32_t misses) const noexcept {
  const auto& lanes = lanes_.all();
  return std::any_of(lanes.begin(), lanes.end(), [&](const auto& one) {
    return one.second->mode == Lane::Mode::kResting || one.second->misses >= misses;
  });
}

// --- Memory -------------------------------------------------------------------------------------

Status Arena::ensure_range(Bytes bytes) noexcept {
  if (bytes <= memory_.range_bytes()) return {};
  if (memory_.base() == nullptr) return memory_.reserve(bytes);
  // mutant: s15-range
  if (!occupancy_.empty() || !pins_.empty()) return {Status::Code::kFailed, "arena in use"};
  // mutant: s5-range
  if (device_.properties().asynchronous && !events_.synchronize())
    return {Status::Code::kFailed, "synchronize"};
  const Bytes before = memory_.range_bytes();
  const Status status = memory_.reserve(bytes);
  // The plan that is served needs its range again: without one nothing is served.
  if (!status.ok() && memory_.base() == nullptr && !memory_.reserve(before).ok()) deactivate();
  recount();
  return status;
}

bool Arena::fill(bool may_grow) noexcept {
  if (memory_.ready()) return true;
  // Whose work comes next; others wait for it.
  const Lane* const lane = fast_lane_ != nullptr ? fast_lane_ : lanes_.lone();
  const LaneKey key = lane != nullptr ? lane->key : fast_key_;
  const Bytes missing = memory_.missing();
  const ArenaMemory::Brought brought = memory_.fill(key, may_grow);
  guard_moved(brought, key);
  if (memory_.missing() != missing) memory_changed();
  recount();
  return brought.all;
}

// Pages came or went that no block asked for.
void Arena::memory_changed() noexcept {
  forget_spared();
  if (!lookup_) return;
  occupancy_.memory_changed([&](ByteRange bytes) { return memory_.has(bytes); },
                            [&](PlanLookup::SlotIndex slot) {
                              const Sequence& own =
                                  lookup_->plan().sequences[lookup_->sequence_of(slot)];
                              const Lane& lane = lanes_.of_plan(own.lane);
                              // mutant: x-idle-pages
                              return !lane.all_astray && walk_.on_schedule(lane, slot);
                            });
}

// Pages that came for one lane: the others wait for what that one waits for.
void Arena::guard_moved(const ArenaMemory::Brought& brought, LaneKey key) noexcept {
  if (brought.moved.size() == 0 || !device_.properties().asynchronous) return;
  if (const Lane* const lone = lanes_.lone(); lone != nullptr && lone->key == key) return;
  // mutant: s5-pages-came
  if (!guards_.add(brought.moved, key, Guards::Binds::kAll)) (void)events_.synchronize();
}

Bytes Arena::needed(const PlanLookup& plan) const {
  Bytes pages = 0;
  for (const ByteRange range : memory_.pages_under(plan.covered())) pages += range.size();
  return pages * device_.properties().page_bytes;
}

Bytes Arena::give_back(Bytes handle) noexcept {
  memory_.set_least_handle(handle);
  try {
    return give_back(memory_.stretches());
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

Bytes Arena::give_back_leftover() noexcept {
  try {
    const std::vector<ByteRange> unneeded = memory_.unneeded();
    leftover_ = !unneeded.empty();
    // What was rounded up is none: the same range would come again.
    if (!device_.properties().maps_pages && lookup_ != nullptr &&
        memory_.range_of(lookup_->plan().arena_bytes) >= memory_.range_bytes()) {
      leftover_ = false;
      return 0;
    }
    const Bytes page = device_.properties().page_bytes;
    for (const ByteRange bytes : without(unneeded, bytes_in_use())) {
      if (align_up(bytes.first, page) + page <= bytes.last) return give_back(unneeded);
    }
  } catch (const std::bad_alloc&) {  // then they stay
  }
  return 0;
}

Bytes Arena::give_back(const std::vector<ByteRange>& stretches) {
  if (stretches.empty()) return 0;
  // mutant: s5-pages
  if (device_.properties().asynchronous && !events_.synchronize()) return 0;
  synchronized();
  Bytes given = 0;
  if (device_.properties().maps_pages) {
    for (const ByteRange bytes : without(stretches, bytes_in_use()))
      given += memory_.give_back(bytes);
  } else if (occupancy_.empty() && pins_.empty()) {
    // In one piece, and its addresses with it.
    std::shared_ptr<const PlanLookup> plan = lookup_;
    deactivate();
    given = memory_.release();
    if (plan) given_up_ = std::move(plan);
  }
  memory_changed();
  recount();
  return given;
}

std::vector<ByteRange> Arena::bytes_in_use() const {
  std::vector<ByteRange> used;
  // mutant: x-pages
  occupancy_.for_each_in_order([&](ByteRange bytes) { add_united(used, bytes); });
  // mutant: s15-retire
  pins_.for_each([&](ByteRange bytes) { used.push_back(bytes); });
  return united(std::move(used));
}

std::vector<Stretch> Arena::stretches() const {
  using Piece = Stretch::Piece;
  std::vector<Piece> blocks;
  using Use = Occupancy::Use;
  std::vector<ByteRange> away;
  occupancy_.for_each_block(owner(), [&](ByteRange bytes, const Block& block, Use use) {
    if (use == Use::kAway)
      away.push_back(bytes);
    else
      blocks.push_back({memory_.base() + bytes.first, bytes.size(), block.requested, block.lane,
                        use == Use::kLive ? Piece::Kind::kLive : Piece::Kind::kWaiting});
  });
  std::sort(blocks.begin(), blocks.end(),
            [](const Piece& a, const Piece& b) { return a.pointer < b.pointer; });
  std::vector<Stretch> result;
  auto block = blocks.begin();
  for (const ByteRange bytes : without(memory_.stretches(), united(std::move(away)))) {
    Stretch stretch{memory_.base() + bytes.first, bytes.size(), {}};
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

// --- Self-check ---------------------------------------------------------------------------------

std::string Arena::is_valid() const {
  if (std::string broken = occupancy_.is_valid(); !broken.empty()) return broken;
  for (const Occupancy::Cell& cell : occupancy_.cells()) {
    if (cell.slot >= Occupancy::kOffSchedule) continue;
    const Lane& lane =
        lanes_.of_plan(lookup_->plan().sequences[lookup_->sequence_of(cell.slot)].lane);
    if (lookup_->plan().sequences[lane.sequence].parent < 0 && !walk_.on_schedule(lane, cell.slot))
      return fmt::format("slot {} is live at tick {} and not off schedule", cell.slot,
                         lane.position);
  }
  for (PlanLookup::CellIndex index = 0; index < occupancy_.cells().size(); ++index) {
    const Occupancy::Cell& cell = occupancy_.cells()[index];
    if (cell.slot != Occupancy::kBare && !cell.partly && !memory_.has(lookup_->cell_bytes(index)))
      return fmt::format("pages are missing at {}", lookup_->cell_offset(index));
  }
  const std::size_t attention =
      occupancy_.off_schedule() + pins_.size() + guards_.binding_all() + (parked_ ? 1 : 0);
  if (attention != attention_)
    return fmt::format("attention is {}, a walk finds {}", attention_, attention);
  return {};
}

}  // namespace berth
