#include "csrc/pool/state.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

// Holes: whose they are, which one a request takes, how they are cut and coalesce.
namespace berth {

LaneHoles* Pool::State::holes_of(LaneKey lane) noexcept {
  if (!asynchronous) return &nobody;
  if (last_lane != nullptr && last_lane->lane == lane) return last_lane;
  try {
    std::unique_ptr<LaneHoles>& holes = lanes[lane];
    if (holes == nullptr) {
      holes = std::make_unique<LaneHoles>();
      if (!maps) holes->order_by_size();
      holes->lane = lane;
      holes->may_go = device.may_go(lane);
    }
    return last_lane = holes.get();
  } catch (const std::bad_alloc&) {
    lanes.erase(lane);
    return nullptr;
  }
}

Chunk* Pool::State::find_hole(End end, LaneHoles& mine, Bytes size) noexcept {
  const auto pick = [&](LaneHoles& holes) {
    const HoleTree& tree = holes.at(end);
    return maps && end == End::kHigh ? tree.highest(size) : tree.lowest(size);
  };
  Chunk* const own = pick(mine);
  if (&mine == &nobody) return own;
  Chunk* const free = pick(nobody);
  if (own == nullptr || free == nullptr) return own == nullptr ? free : own;
  if (!maps && own->size != free->size) return own->size < free->size ? own : free;
  return (own->first() < free->first()) == (end != End::kHigh) ? own : free;
}

Chunk* Pool::State::find_dense_hole(End end, LaneHoles& mine, Bytes size, bool tight) noexcept {
  const auto in_parts = [&](Bytes first, Bytes last) {
    const Bytes whole = align_up(first, page), end_of_whole = align_down(last, page);
    return last - first - (whole < end_of_whole ? end_of_whole - whole : 0);
  };
  Chunk* best = nullptr;
  Bytes most = 0;
  const auto consider = [&](Chunk* hole) {
    const Bytes left = end == End::kHigh ? in_parts(hole->first(), hole->last() - size)
                                         : in_parts(hole->first() + size, hole->last());
    // A hole has less than two pages in parts.
    const Bytes added = 2 * page + left - in_parts(hole->first(), hole->last());
    if (best != nullptr && (added > most || (added == most && end != End::kHigh))) return;
    best = hole;
    most = added;
  };
  mine.at(end).for_each(size, consider);
  if (&mine != &nobody) nobody.at(end).for_each(size, consider);
  // mutant: holes-tight, holes-left
  if (tight && (best == nullptr || most > 2 * page + page / kMostAdded))
    if (Chunk* const block = stitch_parts(end, mine, size, Spare::kThisStep, false)) return block;
  return best;
}

Chunk* Pool::State::find_hole_slowly(End end, LaneHoles& mine, Bytes size, Growth growth,
                                     bool* fresh) noexcept {
  const bool resident = end == End::kResident;
  const End other = end == End::kLow ? End::kHigh : End::kLow;
  // No segment is given back, or serves a large block, while a small one lives in it.
  const bool apart = resident || !maps;
  const auto find = [&]() {
    Chunk* const hole = find_hole(end, mine, size);
    return hole != nullptr || apart ? hole : find_hole(other, mine, size);
  };
  if (!apart)
    if (Chunk* const hole = find_hole(other, mine, size)) return hole;
  // No event may be asked while the lane is captured.
  // mutant: s12-growth, s13-pool
  if (!waiting.empty() && !is_captured(mine.lane) && process_some_events() != 0)
    if (Chunk* const hole = find()) return hole;
  if (lanes.size() > 1 && !is_captured(mine.lane) && prove_holes(&mine))
    if (Chunk* const hole = find()) return hole;
  if (lanes.size() > 1 && !is_captured(mine.lane) && prove_foreign_holes(mine))
    if (Chunk* const hole = find()) return hole;
  if (size >= page / 2 && (is_scarce(size) || !may_grow(growth_for(end, mine, size), size)))
    if (Chunk* const block = stitch_parts(end, mine, size, Spare::kThisStep, true)) return block;
  if (size >= page)
    if (Chunk* const block = stitch_spared(end, mine, size, growth)) return block;
  if (Chunk* const hole = grow(end, mine, size, fresh)) return hole;
  for (const End any : {End::kLow, End::kHigh, End::kResident})
    if (Chunk* const hole = find_hole(any, mine, size)) return hole;
  if (!asynchronous) return nullptr;
  if (Chunk* const block = stitch_parts(end, mine, size, Spare::kSoon, true)) return block;
  // mutant: s14-pool
  if (is_captured(mine.lane)) return nullptr;
  for (const End any : {end, other, resident ? End::kHigh : End::kResident})
    if (Chunk* const hole = take_hole_of_another_lane(any, mine, size)) return hole;
  if (Chunk* const block = stitch_again(mine, size, Spare::kAny)) return block;
  if (Chunk* const block = stitch(end, mine, size, Spare::kAny)) return block;
  return stitch_parts(end, mine, size, Spare::kAny, true);
}

bool Pool::State::prove_holes(const LaneHoles* mine) noexcept {
  // In segments a hole stays its lane's, as in PyTorch's allocator: lanes that mix in a segment
  // keep it from each other.
  // mutant: plain-lanes
  if (!maps || lanes.size() < 2 || events.captured()) return false;
  const auto for_each_other = [&](auto&& visit) {
    std::size_t left = kAskedToGrow;
    for (const auto& [lane, holes] : lanes) {
      if (holes.get() == mine || holes->empty()) continue;
      if (left-- == 0) break;
      visit(lane, *holes);
    }
  };
  const auto end_epoch = [&](LaneKey lane, LaneHoles& holes) {
    if (holes.ended || events.record(lane, &holes.end_of_epoch) != LaneEvents::Recorded::kYes)
      return;
    holes.ended = true;
    ++holes.epoch;
  };
  bool proven = false;
  const auto prove = [&](LaneKey, LaneHoles& holes) {
    // mutant: s5-epoch
    if (holes.ended && events.reached(holes.end_of_epoch)) {
      proven |= disown_until(holes, holes.epoch - 1);
      holes.ended = false;
    }
  };
  // Who would grow asks at once: a lane that has nothing to do is past its end now.
  if (mine == nullptr) for_each_other(prove);
  for_each_other(end_epoch);
  if (mine == nullptr) return proven;
  events.poll(kAskedToGrow);
  for_each_other(prove);
  return proven;
}

bool Pool::State::disown_until(LaneHoles& holes, std::uint32_t epoch) noexcept {
  bool any = false;
  for (HoleTree& tree : holes.trees) {
    for (Chunk* hole = tree.front(); hole != nullptr;) {
      Chunk* const next = HoleTree::after(hole);
      // mutant: s5-newer
      if (hole->epoch <= epoch) {
        disown(hole);
        add_hole(hole);
        any = true;
      }
      hole = next;
    }
  }
  return any;
}

bool Pool::State::prove_foreign_holes(const LaneHoles& mine) noexcept {
  // mutant: s13-foreign
  if (events.captured()) return false;
  Bytes bytes = 0;
  for (const auto& [lane, holes] : lanes) {
    if (holes.get() != &mine && holes->may_go) bytes += holes->bytes();
  }
  // mutant: s2-foreign
  if (bytes <= std::max(kMostUnproven, stats.reserved / kUnprovenPart)) return false;
  if (!events.synchronize()) return false;
  (void)free_ready(kAllLanes);
  disown_all();
  return true;
}

void Pool::State::disown_all() noexcept {
  const auto for_each_hole = [&](auto&& visit) {
    for (const auto& segment : segments)
      for (Chunk* chunk = segment->head; chunk != nullptr; chunk = chunk->next)
        if (chunk->kind == Chunk::Kind::kHole) chunk = visit(chunk);
  };
  // All before any coalesces: beside a lane's hole it would become that lane's.
  for_each_hole([&](Chunk* hole) {
    const End end = hole->segment->end;
    disown(hole);
    nobody.at(end).insert(hole);
    return hole;
  });
  for_each_hole([&](Chunk* hole) {
    disown(hole);
    return add_hole(hole);
  });
  forget_lanes();
}

void Pool::State::forget_lanes() noexcept {
  constexpr std::size_t kFewLanes = 64;
  // mutant: lanes-stay
  if (lanes.size() <= kFewLanes) return;
  for (const auto& [lane, holes] : lanes) holes->used = holes.get() == last_lane;
  for (const auto& segment : segments)
    for (const Chunk* chunk = segment->head; chunk != nullptr; chunk = chunk->next)
      if (chunk->owner != nullptr) chunk->owner->used = true;
  for (const Stitch& stitch : stitches.live()) stitch.block->owner->used = true;
  std::erase_if(lanes, [](const auto& one) { return !one.second->used; });
}

Chunk* Pool::State::take_hole_of_another_lane(End end, LaneHoles& mine, Bytes size) noexcept {
  for (const auto& [lane, holes] : lanes) {
    if (holes.get() == &mine) continue;
    Chunk* const hole = find_hole(end, *holes, size);
    if (hole == nullptr) continue;
    LaneEvents::Point point;
    // mutant: s14-source
    if (events.record(lane, &point) != LaneEvents::Recorded::kYes) continue;
    // mutant: s5-hole
    if (events.wait(mine.lane, point)) return hole;
  }
  return nullptr;
}

namespace {

// Blocks of whole pages begin with one where they are so many units: what stays for good leaves no
// parts of pages at its ends, which no plan's arena could use.
constexpr Bytes kLeastAligned = 8;

}  // namespace

Chunk* Pool::State::cut(Chunk* hole, Bytes size) noexcept {
  const End end = hole->segment->end;
  if (maps && end == End::kHigh && size >= kLeastAligned * unit && size % page == 0) {
    const Bytes first = align_down(hole->last() - size, page);
    if (first >= hole->first() && first + size != hole->last())
      return take_out(hole, {first, first + size}, Chunk::Kind::kLive);
  }
  HoleTree& tree = hole->owner->at(end);
  Chunk* block = hole;
  if (hole->size == size) {
    tree.erase(hole);
  } else {
    block = slab.take();
    hole->size -= size;
    if (end == End::kHigh) {
      block->pointer = reinterpret_cast<void*>(hole->last());
      hole->segment->link_after(hole, block);
    } else {
      block->pointer = hole->pointer;
      hole->pointer = reinterpret_cast<void*>(hole->first() + size);
      hole->segment->link_after(hole->previous, block);
    }
    tree.resized(hole);
  }
  block->size = size;
  block->kind = Chunk::Kind::kLive;
  return block;
}

Chunk* Pool::State::add_hole(Chunk* chunk) noexcept {
  Segment& segment = *chunk->segment;
  LaneHoles* owner = chunk->owner;
  // Bytes that nobody owns may become a lane's, so that they coalesce; not one's that may go.
  const auto coalesces = [&](const Chunk* with) {
    if (with == nullptr || with->kind != Chunk::Kind::kHole) return false;
    // mutant: s5-neighbour
    if (with->owner != owner && with->owner != &nobody && owner != &nobody) return false;
    // mutant: s2-absorbed
    if (with->owner != owner && (with->owner->may_go || owner->may_go)) return false;
    if (owner == &nobody) owner = with->owner;
    return true;
  };
  Chunk* const left = coalesces(chunk->previous) ? chunk->previous : nullptr;
  Chunk* const right = coalesces(chunk->next) ? chunk->next : nullptr;
  // A neighbour that is in the right tree at the right place only has to grow.
  Chunk* keep = nullptr;
  if (left != nullptr && left->owner == owner)
    keep = left;
  else if (right != nullptr && right->owner == owner)
    keep = right;
  Chunk* const hole = keep == nullptr ? chunk : keep;
  void* const pointer = left == nullptr ? chunk->pointer : left->pointer;
  Bytes size = chunk->size;
  const Bytes requested = chunk->requested;
  for (Chunk* const neighbour : {left, right}) {
    if (neighbour == nullptr) continue;
    size += neighbour->size;
    if (neighbour == keep) continue;
    neighbour->owner->at(segment.end).erase(neighbour);
    segment.unlink(neighbour);
    slab.give(neighbour);
  }
  if (hole != chunk) {
    segment.unlink(chunk);
    slab.give(chunk);
  }
  hole->pointer = pointer;
  hole->size = size;
  hole->requested = requested;
  hole->kind = Chunk::Kind::kHole;
  hole->owner = owner;
  hole->epoch = owner->epoch;
  HoleTree& tree = owner->at(segment.end);
  if (keep == nullptr)
    tree.insert(hole);
  else
    tree.resized(hole);
  return hole;
}

void Pool::State::leave_hole(Chunk* previous, ByteRange bytes, LaneHoles* owner,
                             std::uint32_t epoch, Segment& segment) noexcept {
  if (bytes.size() == 0) return;
  Chunk* const rest = slab.take();
  rest->pointer = reinterpret_cast<void*>(bytes.first);
  rest->size = bytes.size();
  rest->owner = owner;
  rest->epoch = epoch;
  rest->kind = Chunk::Kind::kHole;
  segment.link_after(previous, rest);
  owner->at(segment.end).insert(rest);
}

Chunk* Pool::State::take_out(Chunk* hole, ByteRange bytes, Chunk::Kind kind) noexcept {
  Segment& segment = *hole->segment;
  LaneHoles* const owner = hole->owner;
  owner->at(segment.end).erase(hole);
  leave_hole(hole->previous, {hole->first(), bytes.first}, owner, hole->epoch, segment);
  leave_hole(hole, {bytes.last, hole->last()}, owner, hole->epoch, segment);
  hole->pointer = reinterpret_cast<void*>(bytes.first);
  hole->size = bytes.size();
  hole->kind = kind;
  return hole;
}

void Pool::State::disown(Chunk* hole) noexcept {
  hole->owner->at(hole->segment->end).erase(hole);
  hole->owner = &nobody;
}

}  // namespace berth
