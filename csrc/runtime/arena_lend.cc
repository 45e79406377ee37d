#include "csrc/runtime/arena.h"

#include <algorithm>
#include <new>
#include <utility>

// What an arena does for a request whose planned bytes are in use.
namespace berth {
namespace {

// Gaps, and blocks within one, that a request looks at.
constexpr std::size_t kMostTries = 64;
// Blocks that a request of a lane that rests looks at; smaller ones go to the pool, where they cost
// little memory.
constexpr std::size_t kMostTriesIdle = 256;
constexpr Bytes kLeastIdle = Bytes{1} << 20;

}  // namespace

// A block that overstays keeps every later tenant from its bytes: after one change in a run of
// equal requests that can be a hundred, since a request that looks like the one before it is served
// there, however long it then lives. Elsewhere in the arena there are bytes that the plan needs for
// nobody while such a tenant lives: those of slots that stand empty, and those of times past or to
// come.
//
// Sound by the rule: all that is live and on schedule now was live when the gaps were found or was
// planned to be born since, so it lies outside of them; all else that is live is off schedule, and
// looked up. What is lent is off schedule until it is freed.
Arena::Outcome Arena::lend(Lane& lane, const PlanLookup::Entry& wanted, Bytes requested,
                           std::uint64_t id) {
  const Outcome miss = Outcome::missed(Served::kMissBusy);
  const Bytes size = rounded(requested);
  try {
    if (!find_gaps(lane, wanted)) return miss;
    std::size_t tries = 0;
    for (const ByteRange gap : gaps_.ranges) {
      if (gap.size() < size || ++tries > kMostTries) break;
      const std::optional<ByteRange> bytes = unused_in(gap, size, kMostTries);
      if (!bytes || !guards_.wait(lane.key, *bytes, Guards::Binds::kShared) ||
          !memory_.ensure(*bytes))
        continue;
      strays_.reserve(strays_.size() + cells_.size() + 1);  // every cell may still become one
      return hand_out_lent(lane, *bytes, requested, id);
    }
  } catch (const std::bad_alloc&) {
    // Host memory is short: the pool may still have a block.
  }
  return miss;
}

// A step of another kind (an evaluation, another batch) would need its memory beside an arena that
// lies idle. While the plan's only lane rests no slot is handed out, so all bytes serve that are
// not live now, whatever the plan wants them for; slots that come to want them miss until they are
// freed.
//
// Sound by the rule: all that is live here is off schedule from now on, and what is lent is, too.
Arena::Outcome Arena::lend_idle(const Lane& lane, Bytes requested, std::uint64_t id, Outcome miss) {
  const Bytes size = rounded(requested);
  if (requested < kLeastIdle || !lane.entered || !memory_.ready() ||
      lookup_->plan().lane_keys.size() != 1)
    return miss;
  try {
    strays_.reserve(strays_.size() + cells_.size() + 1);  // every cell may still become one
    if (!std::exchange(all_astray_, true)) {
      for (PlanLookup::CellIndex index = 0; index < cells_.size(); ++index) make_stray(index);
    }
    std::optional<ByteRange> bytes;
    for (const ByteRange covered : lookup_->covered()) {
      if (!bytes) bytes = unused_in(covered, size, kMostTriesIdle);
    }
    if (!bytes || !guards_.wait(lane.key, *bytes, Guards::Binds::kShared)) return miss;
    return hand_out_lent(lane, *bytes, requested, id);
  } catch (const std::bad_alloc&) {
    return miss;
  }
}

// strays_ has room for one more.
Arena::Outcome Arena::hand_out_lent(const Lane& lane, ByteRange bytes, Bytes requested,
                                    std::uint64_t id) {
  strays_.insert(bytes, Stray{PlanLookup::kNone, requested, lane.key, id, false});
  ++attention_;
  return Outcome::handed_out(Served::kLent, memory_.base() + bytes.first, bytes.size());
}

// The first bytes of a gap that nothing off schedule and no captured graph has.
std::optional<ByteRange> Arena::unused_in(ByteRange gap, Bytes size, std::size_t most_tries) const {
  ByteRange bytes{gap.first, gap.first + size};
  for (std::size_t tries = 0; bytes.last <= gap.last && tries < most_tries; ++tries) {
    auto taken = strays_.find_touching(bytes);
    if (!taken) taken = pins_.find_touching(bytes);
    if (!taken) return bytes;
    const Bytes first = align_up(taken->last, alignment_);
    bytes = {first, first + size};
  }
  return std::nullopt;
}

// To look for gaps is a walk over what is live and what is born soon. They hold for a while, and a
// request that found its bytes in use pays for a part of the walk only, so that a plan that no
// longer fits costs no more for them.
bool Arena::find_gaps(const Lane& lane, const PlanLookup::Entry& wanted) {
  constexpr std::uint32_t kHold = 64;        // ticks
  constexpr std::uint64_t kSlotsPaid = 256;  // by a request
  constexpr std::uint64_t kWalksAtOnce = 16;
  ++gaps_.busy;
  const std::vector<Sequence>& sequences = lookup_->plan().sequences;
  const std::uint32_t period = sequences[lane.sequence].period;
  const bool valid = gaps_.lane == &lane && gaps_.sequence == lane.sequence &&
                     gaps_.from <= lane.position && lane.position < gaps_.until;
  // The longer gaps hold, the smaller they are.
  const std::uint32_t hold = std::max(kHold, 2 * std::min(wanted.length, period));
  const std::uint32_t left = gaps_.until - lane.position;
  const bool right = valid && (left >= wanted.length || gaps_.until == period) && left <= 2 * hold;
  if (right || gaps_.walked > kWalksAtOnce * lookup_->slot_count() + kSlotsPaid * gaps_.busy)
    return valid;

  const std::uint32_t from = lane.position;
  const std::uint32_t until = std::min(period, from + hold);
  std::vector<ByteRange> needed;
  const auto add = [&](PlanLookup::SlotIndex slot) {
    const PlanLookup::Entry& entry = entries_[slot];
    if (entry.cell == PlanLookup::kNone) return;
    needed.push_back({entry.offset, entry.offset + rounded(entry.requested)});
  };
  for (const Cell& cell : cells_) {
    if (cell.slot != PlanLookup::kNone) add(cell.slot & ~kOffSchedule);
  }
  gaps_.walked += cells_.size();
  for (std::uint32_t s = 0; s < sequences.size(); ++s) {
    // The k-th own slot is born at tick fork + k. Other lanes may be anywhere in their own step.
    const bool own = sequences[s].lane == lane.plan_lane;
    const std::uint32_t fork = sequences[s].fork, end = sequences[s].period;
    const std::uint32_t first_tick = own ? std::max(from + 1, fork) : fork;
    const std::uint32_t last_tick = own ? std::min(until, end) : end;
    for (std::uint32_t tick = first_tick; tick < last_tick; ++tick)
      add(lookup_->first_slot(s) + tick - fork);
    gaps_.walked += last_tick > first_tick ? last_tick - first_tick : 0;
  }
  std::sort(needed.begin(), needed.end(),
            [](ByteRange a, ByteRange b) { return a.first < b.first; });
  std::vector<ByteRange> ranges;
  Bytes first = 0;
  for (const ByteRange range : needed) {
    if (range.first > first) ranges.push_back({first, range.first});
    first = std::max(first, range.last);
  }
  const Bytes last = lookup_->plan().arena_bytes;
  if (first < last) ranges.push_back({first, last});
  // The largest first: a request looks at a few.
  std::sort(ranges.begin(), ranges.end(), [](ByteRange a, ByteRange b) {
    return a.size() != b.size() ? a.size() > b.size() : a.first < b.first;
  });
  gaps_.lane = &lane;
  gaps_.sequence = lane.sequence;
  gaps_.from = from;
  gaps_.until = until;
  gaps_.ranges = std::move(ranges);
  return true;
}

}  // namespace berth
