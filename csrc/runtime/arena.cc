#include "csrc/runtime/arena.h"

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
  if (!lookup_) return {};
  tend_guards();
  Lane* const lane = lanes_.find(key);
  if (lane == nullptr) return Outcome::missed(Served::kMissLane);
  lane->used = true;
  const std::uint64_t step_ends = walk_.step_ends();
  const Walk::Step step = walk_.next(*lane, requested);
  if (walk_.step_ends() != step_ends) memory_.step_starts();
  Outcome outcome;
  if (step.slot) {
    outcome = hand_out(*lane, *step.slot, id);
  } else if (step.known) {
    outcome.served = Served::kMissSize;
    if (lane->mode == Lane::Mode::kResting) outcome = lend_idle(*lane, requested, id, outcome);
  }
  outcome.realigned = step.realigned;
  select(*lane);
  return outcome;
}

// A lane that is aligned is served on the fast path until another lane asks.
void Arena::select(Lane& lane) noexcept {
  fast_key_ = lane.key;
  fast_lane_ = lane.mode == Lane::Mode::kAligned ? &lane : nullptr;
}

Arena::Outcome Arena::hand_out(Lane& lane, PlanLookup::SlotIndex slot, std::uint64_t id) {
  const PlanLookup::Entry& entry = entries_[slot];
  walk_.advance(lane, entry.birth);
  if (entry.cell == PlanLookup::kNone || memory_.asleep())
    return Outcome::missed(Served::kUnplanned);
  const Bytes size = occupancy_.rounded(entry.requested);
  if (!may_have(lane, entry, size)) return lend(lane, entry, id);
  if (filling() && !memory_.ensure({entry.offset, entry.offset + size}))
    return Outcome::missed(Served::kMissBusy);
  occupancy_.put(slot, size, id);
  return Outcome::handed_out(Served::kHit, memory_.base() + entry.offset, size);
}

// The rule.
bool Arena::may_have(const Lane& lane, const PlanLookup::Entry& entry, Bytes size) {
  const ByteRange bytes{entry.offset, entry.offset + size};
  if (!occupancy_.is_free(entry, size)) return false;
  if (pins_.touching(bytes)) return false;
  return guards_.wait(lane.key, bytes, entry.shared ? Guards::Binds::kShared : Guards::Binds::kAll);
}

// --- Lending
// --------------------------------------------------------------------------------------

// Other bytes for a request whose own are in use.
Arena::Outcome Arena::lend(const Lane& lane, const PlanLookup::Entry& wanted, std::uint64_t id) {
  const Outcome miss = Outcome::missed(Served::kMissBusy);
  try {
    const std::optional<ByteRange> bytes =
        lending_.find(lane, wanted, occupancy_.rounded(wanted.requested),
                      [&](ByteRange range) { return may_borrow(lane, range); });
    return bytes ? hand_out_lent(lane, *bytes, wanted.requested, id) : miss;
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
  if (requested < kLeastIdle || !lane.entered || !memory_.ready() || lanes_.lone() == nullptr)
    return miss;
  try {
    occupancy_.reserve(occupancy_.cells().size() + 1);
    if (!std::exchange(lane.all_astray, true)) walk_.leave_schedule(lane);
    const std::optional<ByteRange> bytes = lending_.find_idle(
        occupancy_.rounded(requested), [&](ByteRange range) { return may_borrow(lane, range); });
    return bytes ? hand_out_lent(lane, *bytes, requested, id) : miss;
  } catch (const std::bad_alloc&) {
    return miss;
  }
}

bool Arena::may_borrow(const Lane& lane, ByteRange bytes) noexcept {
  return guards_.wait(lane.key, bytes, Guards::Binds::kShared) && memory_.ensure(bytes);
}

Arena::Outcome Arena::hand_out_lent(const Lane& lane, ByteRange bytes, Bytes requested,
                                    std::uint64_t id) {
  occupancy_.reserve(occupancy_.cells().size() + 1);  // every cell may still come off schedule
  occupancy_.lend(bytes, {requested, id, lane.key});
  return Outcome::handed_out(Served::kLent, memory_.base() + bytes.first, bytes.size());
}

// --- Frees
// ----------------------------------------------------------------------------------------

Arena::Freed Arena::free(void* pointer, std::optional<LaneKey> freeing) noexcept {
  using Binds = Guards::Binds;
  const Bytes offset = offset_of(pointer);
  const Occupancy::Taken taken = occupancy_.take(offset, owner());
  Freed freed;
  if (!taken.found) return freed;
  freed.found = true;
  freed.late = taken.off_schedule;
  freed.requested = taken.block.requested;
  freed.size = occupancy_.rounded(taken.block.requested);
  freed.id = taken.block.id;
  freed.owner = taken.block.lane;

  // Record first, let go after: the points must cover all work queued before the bytes count as
  // free.
  const ByteRange bytes{offset, offset + freed.size};
  bool guarded = true;
  if (freeing && *freeing != freed.owner) guarded &= guards_.add(bytes, *freeing, Binds::kAll);
  if (const auto uses = uses_.find(offset); uses != uses_.end()) {
    for (const LaneKey lane : uses->second) guarded &= guards_.add(bytes, lane, Binds::kAll);
    uses_.erase(uses);
  }
  // Of an earlier plan, or lent: any lane may be next to have the bytes.
  if (!taken.planned) guarded &= guards_.add(bytes, freed.owner, Binds::kAll);
  if (taken.shared) guarded &= guards_.add(bytes, freed.owner, Binds::kShared);
  if (!guarded) {
    freed.device_error = true;
    unproven_ += freed.size;
    occupancy_.lose(bytes, taken.block);
  }
  recount();
  return freed;
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
  pins_.pin({offset, offset + occupancy_.rounded(block->requested)});
  recount();
  return true;
}

bool Arena::unpin(const void* pointer) noexcept {
  const bool pinned = pins_.unpin(offset_of(pointer));
  recount();
  return pinned;
}

// --- What waits
// -----------------------------------------------------------------------------------

void Arena::poll_guards() noexcept {
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
  events_.poll_for_request();
  guards_.let_go_of_some();
  recount();
}

void Arena::recount() noexcept {
  attention_ =
      static_cast<std::uint32_t>(occupancy_.off_schedule() + pins_.size() + guards_.binding_all()) +
      (memory_.ready() ? 0 : 1);
}

}  // namespace berth
