#include "csrc/runtime/lending.h"

#include "csrc/core/byte_ranges.h"

#include <algorithm>
#include <utility>

namespace berth {
namespace {

// Gaps, and blocks within one, that a request looks at.
constexpr std::size_t kMostTries = 64;
// Requests ahead for which nothing is lent that is needed soon.
constexpr std::uint32_t kSoon = 64;
// To sort a slot costs so many times what it costs to pass one over.
constexpr std::uint32_t kSortCost = 8;
// Ticks that are kept in the order of their bytes, of all paths together.
constexpr std::size_t kMostOrdered = std::size_t{1} << 20;
// Blocks that a request of a lane that rests looks at.
constexpr std::size_t kMostTriesIdle = 256;

}  // namespace

void Lending::follow(const PlanLookup& lookup) noexcept {
  lookup_ = &lookup;
  gaps_ = {};
  ahead_ = {};
  orders_ = {};
  ordered_ = 0;
}

std::optional<ByteRange> Lending::find(const Lane& lane, const PlanLookup::Entry& wanted,
                                       Bytes size, const MayHave& may_have) {
  if (!find_gaps(lane, wanted)) return std::nullopt;
  std::size_t gaps = 0;
  for (const ByteRange gap : gaps_.ranges) {
    if (gap.size() < size || ++gaps > kMostTries) break;
    std::size_t tries = kMostTries;
    const std::optional<ByteRange> bytes = unused_in(gap, size, &tries);
    if (bytes && may_have(*bytes)) return bytes;
  }
  return std::nullopt;
}

std::optional<ByteRange> Lending::find_idle(Bytes size, const MayHave& may_have) const {
  std::size_t tries = kMostTriesIdle;
  for (const ByteRange covered : lookup_->covered()) {
    if (tries == 0) break;
    const std::optional<ByteRange> bytes = unused_in(covered, size, &tries);
    if (bytes) return may_have(*bytes) ? bytes : std::nullopt;
  }
  return std::nullopt;
}

const std::vector<Lending::Birth>& Lending::by_bytes(std::uint32_t sequence) {
  if (ordered_ > kMostOrdered) {
    orders_ = {};
    ordered_ = 0;
  }
  if (const auto known = orders_.find(sequence); known != orders_.end()) return known->second;
  std::vector<Birth> order;
  const Path& path = walk_.path(sequence);
  for (std::uint32_t tick = 0; tick < path.size(); ++tick)
    if (const ByteRange bytes = bytes_of(path.slot(tick)); bytes.size() != 0)
      order.push_back({bytes, tick});
  std::sort(order.begin(), order.end(),
            [](const Birth& a, const Birth& b) { return a.bytes.first < b.bytes.first; });
  ordered_ += order.size();
  return orders_.emplace(sequence, std::move(order)).first->second;
}

ByteRange Lending::bytes_of(PlanLookup::SlotIndex slot) const {
  const PlanLookup::Entry& entry = lookup_->entry(slot);
  if (entry.cell == PlanLookup::kNone) return {};
  return {entry.offset, entry.offset + occupancy_.rounded(entry.requested)};
}

const std::vector<ByteRange>& Lending::needed_ahead(const Lanes& lanes, PageLender::Spare spare) {
  std::vector<Window> windows;
  for (const auto& [key, lane] : lanes.all())
    if (lane->mode != Lane::Mode::kResting) windows.push_back(window(*lane, spare));
  Ahead& known = ahead_[static_cast<std::size_t>(spare)];
  // mutant: spared-ahead
  if (known.windows == windows) return known.bytes;
  known = {};
  std::vector<ByteRange> bytes;
  for (const Window& one : windows) add_needed(one, &bytes);
  known = {std::move(windows), united(std::move(bytes))};
  return known.bytes;
}

Lending::Window Lending::window(const Lane& lane, PageLender::Spare spare) const {
  using Spare = PageLender::Spare;
  const std::uint32_t size = walk_.path(lane).size();
  std::uint32_t ahead = size;
  if (spare != Spare::kThisStep) ahead = lane.homeless != 0 ? lane.homeless : size / 4;
  if (lane.misses >= kFewMisses) {
    if (spare == Spare::kSoon) ahead = std::min(kSoon, size / 16);
    if (spare == Spare::kNow) ahead = 0;
  }
  // The k-th request of a path is its tick k.
  return {lane.sequence, lane.position, std::min(size, lane.position + ahead)};
}

void Lending::add_needed(const Window& window, std::vector<ByteRange>* bytes) {
  const Path& path = walk_.path(window.sequence);
  // Many come in the order of their bytes, which spares a sort.
  if (window.until > window.from && path.size() <= kMostOrdered &&
      (window.until - window.from) * kSortCost > path.size()) {
    for (const Birth& one : by_bytes(window.sequence))
      if (one.tick > window.from && one.tick < window.until) add_united(*bytes, one.bytes);
    return;
  }
  for (std::uint32_t tick = window.from + 1; tick < window.until; ++tick)
    if (const ByteRange one = bytes_of(path.slot(tick)); one.size() != 0) add_united(*bytes, one);
}

// The first bytes of a gap that nothing off schedule and no captured graph has; looks at `tries`
// places at most, and takes them off.
std::optional<ByteRange> Lending::unused_in(ByteRange gap, Bytes size, std::size_t* tries) const {
  ByteRange bytes{gap.first, gap.first + size};
  for (; bytes.last <= gap.last && *tries > 0; --*tries) {
    // mutant: x-lent
    auto taken = occupancy_.touching(bytes);
    // mutant: pins-lent
    if (!taken) taken = pins_.touching(bytes);
    if (!taken) return bytes;
    const Bytes first = align_up(taken->last, alignment_);
    bytes = {first, first + size};
  }
  return std::nullopt;
}

bool Lending::find_gaps(const Lane& lane, const PlanLookup::Entry& wanted) {
  constexpr std::uint32_t kHold = 64;        // ticks
  constexpr std::uint64_t kSlotsPaid = 256;  // by a request
  constexpr std::uint64_t kWalksAtOnce = 16;
  ++gaps_.busy;
  const std::uint32_t period = lookup_->plan().sequences[lane.sequence].period;
  const bool valid = gaps_.lane == &lane && gaps_.turns == turns() &&
                     gaps_.sequence == lane.sequence && gaps_.from <= lane.position &&
                     lane.position < gaps_.until;
  // The longer gaps hold, the smaller they are.
  const std::uint32_t hold = std::max(kHold, 2 * std::min(wanted.length, period));
  const std::uint32_t left = gaps_.until - lane.position;
  const bool right = valid && (left >= wanted.length || gaps_.until == period) && left <= 2 * hold;
  if (right || gaps_.walked > kWalksAtOnce * lookup_->slot_count() + kSlotsPaid * gaps_.busy)
    return valid;

  const std::uint32_t until = std::min(period, lane.position + hold);
  std::vector<ByteRange> taken = needed(lane, until);
  std::sort(taken.begin(), taken.end(), [](ByteRange a, ByteRange b) { return a.first < b.first; });
  std::vector<ByteRange> ranges;
  // Where the plan has no slots there are no pages either.
  auto next = taken.begin();
  for (const ByteRange covered : lookup_->covered()) {
    Bytes first = covered.first;
    for (; next != taken.end() && next->first < covered.last; ++next) {
      if (next->first > first) ranges.push_back({first, next->first});
      first = std::max(first, next->last);
    }
    if (first < covered.last) ranges.push_back({first, covered.last});
  }
  // The largest first: a request looks at a few.
  std::sort(ranges.begin(), ranges.end(), [](ByteRange a, ByteRange b) {
    return a.size() != b.size() ? a.size() > b.size() : a.first < b.first;
  });
  gaps_.lane = &lane;
  gaps_.turns = turns();
  gaps_.sequence = lane.sequence;
  gaps_.from = lane.position;
  gaps_.until = until;
  gaps_.ranges = std::move(ranges);
  return true;
}

// What is live, and what is born before the lane's tick `until`. Other lanes may be anywhere in
// their own step.
std::vector<ByteRange> Lending::needed(const Lane& lane, std::uint32_t until) {
  std::vector<ByteRange> result;
  const auto add = [&](PlanLookup::SlotIndex slot) {
    if (const ByteRange bytes = bytes_of(slot); bytes.size() != 0) result.push_back(bytes);
  };
  for (const Occupancy::Cell& cell : occupancy_.cells()) {
    if (!cell.empty()) add(cell.slot & ~Occupancy::kOffSchedule);
  }
  gaps_.walked += occupancy_.cells().size();
  const std::vector<Sequence>& sequences = lookup_->plan().sequences;
  for (std::uint32_t s = 0; s < sequences.size(); ++s) {
    // The k-th own slot is born at tick fork + k.
    const bool own = sequences[s].lane == lane.plan_lane;
    const std::uint32_t fork = sequences[s].fork, end = sequences[s].period;
    const std::uint32_t first_tick = own ? std::max(lane.position + 1, fork) : fork;
    const std::uint32_t last_tick = own ? std::min(until, end) : end;
    for (std::uint32_t tick = first_tick; tick < last_tick; ++tick)
      add(lookup_->first_slot(s) + tick - fork);
    gaps_.walked += last_tick > first_tick ? last_tick - first_tick : 0;
  }
  return result;
}

}  // namespace berth
