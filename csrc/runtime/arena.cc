#include "csrc/runtime/arena.h"

#include "csrc/core/byte_ranges.h"
#include "csrc/core/checksum.h"
#include "csrc/trace/step_kinds.h"

#include <algorithm>
#include <new>
#include <utility>

// How an arena serves requests and takes blocks back. Plans, marks and memory are in arena_plan.cc.
namespace berth {
namespace {

// A request of a lane that rests is lent nothing below this: in the pool it costs little memory.
constexpr Bytes kLeastIdle = Bytes{1} << 20;

}  // namespace

// --- Requests -----------------------------------------------------------------------------------

Arena::Outcome Arena::serve_slowly(Bytes requested, LaneKey key, std::uint64_t id) {
  forget_spared();
  if (!lookup_) return {};
  tend_guards();
  outgrown_.reset();
  Lane* const lane = lanes_.find(key);
  if (lane == nullptr) return Outcome::missed(Served::kMissLane);
  lane->used = true;
  lane->homeless = 0;
  const Walk::Step step = walk_.next(*lane, requested);
  Outcome outcome;
  if (step.slot) {
    outcome = entries_[*step.slot].requested == requested
                  ? hand_out(*lane, *step.slot, id)
                  : hand_out_bucket(*lane, *step.slot, requested, id);
  } else if (step.known) {
    outcome.served = Served::kMissSize;
    if (lane->mode == Lane::Mode::kResting) outcome = lend_idle(*lane, requested, id, outcome);
  }
  if (outcome.pointer == nullptr) ++lane->misses;
  if (outcome.served == Served::kMissSize || step.realigned) ++lane->surprises;
  outcome.realigned = step.realigned;
  select(*lane);
  return outcome;
}

// A lane that is aligned is served on the fast path until another lane asks, or its step turns out
// to be another than the plan's.
void Arena::select(Lane& lane) noexcept {
  fast_key_ = lane.key;
  fast_lane_ = lane.mode == Lane::Mode::kAligned && !shares_pages(lane) ? &lane : nullptr;
}

bool Arena::shares_pages(const Lane& lane) const noexcept {
  return lane.surprises >= Lending::kManyMisses && device_.properties().aliases;
}

// In the plan's step its neighbours come to live beside it. In another they may not, and the pool
// has small blocks side by side.
bool Arena::keeps_page(const Lane& lane, ByteRange bytes) {
  constexpr std::size_t kLeastLooks = 16, kBlocksPaid = 8;
  const Bytes page = device_.properties().page_bytes;
  // mutant: pages-kept-alone
  if (bytes.size() >= page || !shares_pages(lane)) return false;
  if (looks_left_ == 0) {
    in_use_ = bytes_in_use();
    looks_left_ = std::max(kLeastLooks, places() / kBlocksPaid);
  }
  --looks_left_;
  const ByteRange pages{align_down(bytes.first, page), align_up(bytes.last, page)};
  Bytes left = pages.size() - bytes.size();
  auto used = std::upper_bound(in_use_.begin(), in_use_.end(), pages.first,
                               [](Bytes at, ByteRange range) { return at < range.last; });
  for (; used != in_use_.end() && used->first < pages.last; ++used) {
    const Bytes there = std::min(used->last, pages.last) - std::max(used->first, pages.first);
    left -= std::min(left, there);
  }
  return left > page / 2;
}

Arena::Outcome Arena::hand_out(Lane& lane, PlanLookup::SlotIndex slot, std::uint64_t id) {
  const PlanLookup::Entry& entry = entries_[slot];
  walk_.advance(lane, entry.birth);
  lane.homeless = entry.length;
  if (entry.cell == PlanLookup::kNone) return Outcome::missed(Served::kUnplanned);
  if (keeps_page(lane, {entry.offset, entry.offset + occupancy_.rounded(entry.requested)}))
    return Outcome::missed(Served::kMissBusy);
  if (may_have(lane, entry)) return hand_out_planned(lane.key, slot, id);
  // What is in the way tells kinds of steps apart that begin alike: after one of them, blocks live
  // on that the other has freed.
  const auto other = walk_.other_way(lane, slot, entry.requested, [&](PlanLookup::SlotIndex there) {
    return occupancy_.is_free(entries_[there]);
  });
  if (!other) return lend(lane, entry, id);
  // mutant: kinds-bucket-size
  if (entries_[*other].requested != entry.requested)
    return hand_out_bucket(lane, *other, entry.requested, id);
  if (may_have(lane, entries_[*other])) return hand_out_planned(lane.key, *other, id);
  return lend(lane, entries_[*other], id);
}

Arena::Outcome Arena::hand_out_planned(LaneKey key, PlanLookup::SlotIndex slot, std::uint64_t id) {
  const PlanLookup::Entry& entry = entries_[slot];
  const Bytes size = occupancy_.rounded(entry.requested);
  bool all_there = true;
  if (occupancy_.is_bare(entry.cell)) {
    const ByteRange bytes{entry.offset, entry.offset + size};
    const ByteRange all = lookup_->cell_bytes(entry.cell);
    // mutant: pages-ensured
    if (!ensure(bytes, key, all, true)) return Outcome::missed(Served::kMissBusy);
    // mutant: pages-partly
    all_there = memory_.has(all);
  }
  occupancy_.put(slot, size, id, all_there);
  return Outcome::handed_out(Served::kHit, memory_.base() + entry.offset, size);
}

// A smaller block than the slot has only its own bytes, and is off schedule until it is freed: so
// the rule holds whatever else is served there.
Arena::Outcome Arena::hand_out_bucket(Lane& lane, PlanLookup::SlotIndex slot, Bytes requested,
                                      std::uint64_t id) {
  walk_.advance(lane, entries_[slot].birth);
  if (entries_[slot].cell == PlanLookup::kNone) return Outcome::missed(Served::kUnplanned);
  const auto usable = [&](PlanLookup::SlotIndex there) {
    return occupancy_.is_free(entries_[there]);
  };
  if (requested <= entries_[slot].requested && !usable(slot))
    slot = walk_.other_way(lane, slot, requested, usable).value_or(slot);
  const PlanLookup::Entry& entry = entries_[slot];
  // mutant: bucket-larger
  if (requested > entry.requested) {
    // mutant: growth-refused
    note_outgrown(lane, slot, requested);
    return Outcome::missed(Served::kMissSize);
  }
  const ByteRange bytes{entry.offset, entry.offset + occupancy_.rounded(requested)};
  const Bytes left = left_of_page(
      {entry.offset, entry.offset + occupancy_.rounded(entry.requested)}, bytes.size());
  // mutant: bucket-left
  if (left > bytes.size() / kMostLeft && occupancy_.left() + left > most_left_)
    return Outcome::missed(Served::kMissBusy);
  if (keeps_page(lane, bytes)) return Outcome::missed(Served::kMissBusy);
  // mutant: bucket-x
  if (entry.shared || !may_have(lane, entry)) return Outcome::missed(Served::kMissBusy);
  if (!memory_.ready() && !ensure(bytes, lane.key, bytes, true))
    return Outcome::missed(Served::kMissBusy);
  occupancy_.reserve(occupancy_.cells().size() + 1);  // every cell may still come off schedule
  // mutant: bucket-scheduled
  occupancy_.put_within(bytes, {requested, id, lane.key}, left);
  return Outcome::handed_out(Served::kBucket, memory_.base() + bytes.first, bytes.size());
}

void Arena::note_outgrown(const Lane& lane, PlanLookup::SlotIndex slot, Bytes requested) noexcept {
  const auto [index, size] = walk_.place(lane, slot);
  if (index >= size) return;
  outgrown_ = {entries_[slot].requested,
               {lookup_->plan().lane_keys[lane.plan_lane], size, index, requested}};
}

void Arena::grow_bucket() {
  if (!outgrown_) return;
  const auto [room, growth] = *std::exchange(outgrown_, std::nullopt);
  // mutant: growth-bounded
  if (growth_.size() >= kMostGrowth) return;
  // mutant: growth-once
  if (growth.bytes <= StepKind::kTrusted * room) {
    growth_.push_back(growth);
    return;
  }
  if (came_once_.size() >= kMostGrowth) came_once_.clear();
  const std::uint64_t place =
      hash_combine(hash_combine(growth.lane, growth.requests), growth.index);
  Bytes& once = came_once_[place];
  const Bytes twice = std::min(once, growth.bytes);
  once = std::max(once, growth.bytes);
  // mutant: growth-never
  if (twice <= room) return;
  growth_.push_back(growth);
  growth_.back().bytes = twice;
}

// The rule.
bool Arena::may_have(const Lane& lane, const PlanLookup::Entry& entry) {
  const ByteRange bytes{entry.offset, entry.offset + occupancy_.rounded(entry.requested)};
  if (!occupancy_.is_free(entry)) return false;
  // mutant: pins
  if (pins_.touching(bytes)) return false;
  // mutant: guards
  return guards_.wait(lane.key, bytes, entry.shared ? Guards::Binds::kShared : Guards::Binds::kAll);
}

// The pages under bytes that the lane may have, and as far as they lie free those around them.
bool Arena::ensure(ByteRange bytes, LaneKey key, ByteRange around, bool planned) noexcept {
  // mutant: s13-pages
  if (events_.captured()) return false;  // what moves is ordered by events
  const ArenaMemory::Brought brought = memory_.ensure(bytes, around, key, planned);
  guard_moved(brought, key);
  recount();
  return brought.all;
}

// --- Lending
// --------------------------------------------------------------------------------------

// Other bytes for a request whose own are in use.
Arena::Outcome Arena::lend(const Lane& lane, const PlanLookup::Entry& wanted, std::uint64_t id) {
  const Outcome miss = Outcome::missed(Served::kMissBusy);
  // mutant: target-lent
  if (crowded_) return miss;
  try {
    const std::optional<ByteRange> bytes =
        lending_.find(lane, wanted, occupancy_.rounded(wanted.requested),
                      [&](ByteRange range) { return may_borrow(lane, range); });
    return bytes ? hand_out_lent(lane.key, *bytes, wanted.requested, id) : miss;
  } catch (const std::bad_alloc&) {
    return miss;  // host memory is short: the pool may still have a block
  }
}

// A step of another kind (an evaluation, another batch) would need its memory beside an arena that
// lies idle. While the plan's only lane rests no slot is handed out, so all bytes serve that are
// not live now, whatever the plan wants them for; slots that come to want them miss until they are
// freed.
//
// Sound by the rule: all that is live here is off schedule from now on, and what is lent is, too.
Arena::Outcome Arena::lend_idle(Lane& lane, Bytes requested, std::uint64_t id, Outcome miss) {
  // mutant: target-idle
  if (crowded_ || requested < kLeastIdle || !lane.entered || lanes_.lone() == nullptr) return miss;
  try {
    leave_schedule(lane);
    const std::optional<ByteRange> bytes = lending_.find_idle(
        occupancy_.rounded(requested), [&](ByteRange range) { return may_borrow(lane, range); });
    return bytes ? hand_out_lent(lane.key, *bytes, requested, id) : miss;
  } catch (const std::bad_alloc&) {
    return miss;
  }
}

void Arena::leave_schedule(Lane& lane) {
  occupancy_.reserve(occupancy_.cells().size() + 1);
  // mutant: x-idle
  if (!std::exchange(lane.all_astray, true)) walk_.leave_schedule(lane);
}

bool Arena::may_borrow(const Lane& lane, ByteRange bytes) noexcept {
  // mutant: guards-lent
  return guards_.wait(lane.key, bytes, Guards::Binds::kShared) &&
         ensure(bytes, lane.key, bytes, false);
}

Arena::Outcome Arena::lend_spare(std::initializer_list<Spare> spares, Bytes requested, LaneKey key,
                                 std::uint64_t id, Bytes most_left) noexcept {
  if (memory_.committed() == 0) return {};
  const Bytes size = occupancy_.rounded(requested);
  const auto has_room = [&](Spare spare) {
    const std::vector<ByteRange>& gaps = spare_bytes(spare);
    return std::any_of(gaps.begin(), gaps.end(), [&](ByteRange gap) { return gap.size() >= size; });
  };
  try {
    // Most often there is none, which what spares most says for all.
    if (!has_room(Spare::kAny) || !has_room(*(spares.end() - 1))) return {};
    for (const Spare spare : spares) {
      ByteRange best{};
      for (const ByteRange gap : spare_bytes(spare))
        // mutant: lent-left
        if (gap.size() >= size && (best.size() == 0 || gap.size() < best.size()) &&
            left_of_page(gap, size) <= most_left)
          best = gap;
      const ByteRange bytes{best.first, best.first + size};
      if (best.size() != 0 && order_after_lanes(key, bytes))
        return hand_out_lent(key, bytes, requested, id);
    }
  } catch (const std::bad_alloc&) {  // host memory is short
  }
  return {};
}

Bytes Arena::left_of_page(ByteRange gap, Bytes size) const noexcept {
  const Bytes end = gap.first + size;
  return std::min(align_up(end, device_.properties().page_bytes), gap.last) - end;
}

Arena::Outcome Arena::hand_out_lent(LaneKey key, ByteRange bytes, Bytes requested,
                                    std::uint64_t id) {
  forget_spared();
  occupancy_.reserve(occupancy_.cells().size() + 1);  // every cell may still come off schedule
  occupancy_.lend(bytes, {requested, id, key});
  return Outcome::handed_out(Served::kLent, memory_.base() + bytes.first, bytes.size());
}

// --- Frees
// ----------------------------------------------------------------------------------------

Arena::Freed Arena::free(void* pointer, std::optional<LaneKey> freeing) noexcept {
  using Binds = Guards::Binds;
  forget_spared();
  const Bytes offset = offset_of(pointer);
  const Occupancy::Taken taken = occupancy_.take(offset, owner());
  Freed freed;
  if (!taken.found) return freed;
  freed.found = true;
  freed.late = taken.off_schedule && !taken.within;
  freed.requested = taken.block.requested;
  freed.size = occupancy_.rounded(taken.block.requested);
  freed.id = taken.block.id;
  freed.owner = taken.block.lane;

  // Record first, let go after: the points must cover all work queued before the bytes count as
  // free.
  const ByteRange bytes{offset, offset + freed.size};
  bool guarded = true;
  // mutant: s6-arena
  if (freeing && *freeing != freed.owner) guarded &= guards_.add(bytes, *freeing, Binds::kAll);
  if (const auto uses = uses_.find(offset); uses != uses_.end()) {
    // mutant: s1-arena
    for (const LaneKey lane : uses->second) guarded &= guards_.add(bytes, lane, Binds::kAll);
    uses_.erase(uses);
  }
  // Of an earlier plan, or lent: any lane may be next to have the bytes.
  // mutant: s5-lent
  if (!taken.planned && !taken.within) guarded &= let_go(bytes, freed.owner);
  // mutant: s4-event
  if (taken.shared) guarded &= guards_.add(bytes, freed.owner, Binds::kShared);
  if (!guarded) {
    freed.device_error = true;
    unproven_ += freed.size;
    // mutant: s2-arena
    occupancy_.lose(bytes, taken.block);
  }
  recount();
  return freed;
}

// Whoever has the bytes next waits for what `key` has queued; where that is the plan's only lane,
// it does so by itself, and whom the bytes are lent to, or who takes the lane over, waits for it.
bool Arena::let_go(ByteRange bytes, LaneKey key) noexcept {
  const Lane* const lone = lookup_ ? lanes_.lone() : nullptr;
  if (lone != nullptr && lone->key == key && lone->used) return true;
  return guards_.add(bytes, key, Guards::Binds::kAll);
}

std::optional<Arena::Block> Arena::find(const void* pointer) const noexcept {
  return occupancy_.find(offset_of(pointer), owner());
}

void Arena::record_use(const void* pointer, LaneKey key) {
  const std::optional<Block> block = find(pointer);
  if (!block || block->lane == key) return;
  std::vector<LaneKey>& lanes = uses_[offset_of(pointer)];
  if (std::find(lanes.begin(), lanes.end(), key) == lanes.end()) lanes.push_back(key);
}

bool Arena::pin(const void* pointer) {
  const std::optional<Block> block = find(pointer);
  if (!block) return false;
  const Bytes offset = offset_of(pointer);
  forget_spared();
  pins_.pin({offset, offset + occupancy_.rounded(block->requested)});
  recount();
  return true;
}

bool Arena::unpin(const void* pointer) noexcept {
  const bool pinned = pins_.unpin(offset_of(pointer));
  recount();
  return pinned;
}

// --- What is lent to others
// -------------------------------------------------------------------------

// Bytes that have memory, that nobody uses now, and that the plan can spare.
const std::vector<ByteRange>& Arena::spare_bytes(Spare spare) {
  const PlanLookup::SlotIndex at = fast_lane_ != nullptr ? fast_lane_->next : 0;
  // mutant: spared-served
  if (std::exchange(spared_at_, at) != at) forget_spared();
  const auto bit = [](Spare which) {
    return static_cast<std::uint8_t>(1U << static_cast<unsigned>(which));
  };
  const auto find = [&](Spare which, auto&& find_it) -> const std::vector<ByteRange>& {
    std::vector<ByteRange>& found = spared_[static_cast<std::size_t>(which)];
    if ((spared_known_ & bit(which)) != 0) return found;
    found = find_it();
    spared_known_ |= bit(which);
    return found;
  };
  const auto unused = [&]() -> const std::vector<ByteRange>& {
    return find(Spare::kAny, [&] { return without(memory_.stretches(), bytes_in_use()); });
  };
  if (spare == Spare::kAny) return unused();
  if (spare > Spare::kLong && !astray(Lending::kFewMisses)) spare = Spare::kLong;
  return find(spare, [&]() -> std::vector<ByteRange> {
    // While a lane follows the plan its slots are needed, in the next step if not in this one: what
    // no slot has is offered first.
    if (!lookup_) return unused();  // lanes of the plan before: nothing is needed for them
    const auto& lanes = lanes_.all();
    const bool aligned = std::any_of(lanes.begin(), lanes.end(), [](const auto& one) {
      return one.second->mode == Lane::Mode::kAligned;
    });
    const std::vector<ByteRange>& needed = lending_.needed_ahead(lanes_, spare);
    return aligned && spare == Spare::kThisStep
               ? without(common(memory_.unneeded(), unused()), needed)
               : without(unused(), needed);
  });
}

Bytes Arena::spare_parts() {
  const Bytes page = device_.properties().page_bytes;
  Bytes parts = 0;
  if (memory_.committed() == 0) return parts;
  for (const ByteRange bytes : spare_bytes(Spare::kAny)) {
    const Bytes first = align_up(bytes.first, page), last = align_down(bytes.last, page);
    parts += bytes.size() - (first < last ? last - first : 0);
  }
  return parts;
}

void Arena::offer(Spare spare, std::vector<ByteRange>* free) {
  if (memory_.committed() == 0) return;
  const Bytes base = reinterpret_cast<Bytes>(memory_.base());
  for (const ByteRange bytes : spare_bytes(spare))
    free->push_back({base + bytes.first, base + bytes.last});
}

// Work on `key` runs after what the plan's lanes have queued on these bytes.
bool Arena::order_after_lanes(LaneKey key, ByteRange bytes) noexcept {
  for (const auto& [other, lane] : lanes_.all()) {
    if (other == key || !lane->used || !device_.properties().asynchronous) continue;
    LaneEvents::Point point;
    // mutant: s5-lend-lanes
    if (events_.record(other, &point) != LaneEvents::Recorded::kYes || !events_.wait(key, point))
      return false;
  }
  // mutant: pages-lent-guards
  return guards_.wait(key, bytes, Guards::Binds::kShared);
}

bool Arena::lend(LaneKey key, ByteRange bytes) noexcept {
  forget_spared();
  const Bytes first = offset_of(reinterpret_cast<void*>(bytes.first));
  const ByteRange here{first, first + bytes.size()};
  try {
    occupancy_.reserve(occupancy_.cells().size() + 1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (!order_after_lanes(key, here)) return false;
  // mutant: pages-lent
  occupancy_.give_away(here, key);
  recount();
  return true;
}

void Arena::take_back(Bytes address) noexcept {
  forget_spared();
  const Bytes first = offset_of(reinterpret_cast<void*>(address));
  const std::optional<Occupancy::Away> away = occupancy_.take_away_back(first);
  if (!away) return;
  // mutant: s5-lend-back
  if (!let_go({first, away->last}, away->lane)) {
    unproven_ += away->last - first;
    occupancy_.lose({first, away->last}, {away->last - first, 0, away->lane});
  }
  recount();
}

// --- What waits
// -----------------------------------------------------------------------------------

void Arena::poll_guards() noexcept {
  // mutant: s2-arena-poll
  events_.poll_all();
  guards_.let_go();
  recount();
}

void Arena::synchronized() noexcept {
  events_.all_reached();
  guards_.let_go();
  occupancy_.synchronized();
  unproven_ = 0;
  recount();
}

// Where no mark comes guards go by the requests that they slow down, a few at each.
void Arena::tend_guards() noexcept {
  if (guards_.empty()) return;
  // mutant: s12-path, s12-requests
  events_.poll_for_request();
  guards_.let_go_of_some();
  recount();
}

void Arena::recount() noexcept {
  // mutant: guards-fast, s15-fast, parked-fast
  attention_ =
      static_cast<std::uint32_t>(occupancy_.off_schedule() + pins_.size() + guards_.binding_all()) +
      (parked_ ? 1 : 0);
}

}  // namespace berth
