#include "csrc/pool/state.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <optional>
#include <utility>

// Whole pages of holes: blocks stitched of them, and pages that move to somebody else.
namespace berth {
namespace {

// So many stretches of addresses whose pages moved may still be mapped: beyond that none move.
constexpr std::size_t kMostMoved = 4096;

bool larger(ByteRange a, ByteRange b) noexcept {
  return a.size() != b.size() ? a.size() > b.size() : a.first < b.first;
}

}  // namespace

// --- Free pages ---------------------------------------------------------------------------------

Pool::State::FreePages Pool::State::free_pages(const LaneHoles& mine, Spare spare) {
  FreePages free;
  const auto add = [&](const Chunk* hole) {
    // mutant: pages-part-hole
    const ByteRange whole = whole_handles(hole), end = handle_at(hole->last() - 1);
    if (whole.first < whole.last) free.stretches.push_back(whole);
    if (end.first >= hole->first() && end.last != hole->last())
      free.tails.push_back({end.first, hole->last()});
  };
  const auto add_all = [&](const LaneHoles& holes) {
    for (const HoleTree& tree : holes.trees) tree.for_each(page / 4, add);
  };
  add_all(mine);
  if (&mine != &nobody) add_all(nobody);
  if (spare == Spare::kAny)
    for (const auto& [lane, holes] : lanes)
      if (holes.get() != &mine) add_all(*holes);
  if (lender != nullptr) {
    lender->offer(spare, &free.spared);
    for (const ByteRange bytes : free.spared) {
      const ByteRange pages{align_up(bytes.first, page), align_down(bytes.last, page)};
      // mutant: handle-lent
      const ByteRange whole = pages.first < pages.last ? device.whole_handles(pages) : pages;
      if (whole.first < whole.last) free.stretches.push_back(whole);
      const ByteRange end = handle_at(bytes.last - 1);
      if (end.first >= bytes.first && end.last != bytes.last && bytes.last - end.first >= page / 4)
        free.tails.push_back({end.first, bytes.last});
    }
  }
  for (const ByteRange stretch : free.stretches) free.bytes += stretch.size();
  return free;
}

std::vector<ByteRange> Pool::State::choose(FreePages& free, Bytes size) const {
  std::sort(free.stretches.begin(), free.stretches.end(), larger);
  std::vector<ByteRange> chosen;
  auto stretch = free.stretches.begin();
  for (; stretch != free.stretches.end() && stretch->size() <= size; ++stretch) {
    chosen.push_back(*stretch);
    size -= stretch->size();
  }
  if (size == 0) return chosen;
  // The smallest that is large enough, or that has the whole handles of it and a tail the rest.
  const auto smallest = [&](Bytes least) {
    auto fits = stretch;
    while (std::next(fits) != free.stretches.end() && std::next(fits)->size() >= least) ++fits;
    return fits;
  };
  const Bytes over = size % page;
  const ByteRange* tail = nullptr;
  for (const ByteRange& one : free.tails)
    if (one.size() >= over && (tail == nullptr || one.size() < tail->size())) tail = &one;
  if (over != 0 && tail != nullptr) {
    const Bytes whole = size - over;
    const auto fits = smallest(whole);
    if (whole == 0 || handle_at(fits->first + whole - 1).last == fits->first + whole) {
      if (whole != 0) chosen.push_back({fits->first, fits->first + whole});
      chosen.push_back(handle_at(tail->first));
      return chosen;
    }
  }
  const auto fits = smallest(size);
  // mutant: handle-stitch
  chosen.push_back({fits->first, handle_at(fits->first + size - 1).last});
  return chosen;
}

Chunk* Pool::State::hole_around(Bytes at, const LaneHoles* mine) noexcept {
  const End end = residents.contains(at)        ? End::kResident
                  : at < mapped(End::kLow).last ? End::kLow
                                                : End::kHigh;
  const auto in = [&](const LaneHoles& holes) {
    return holes.trees[static_cast<int>(end)].around(at);
  };
  if (Chunk* const hole = in(nobody)) return hole;
  if (mine != nullptr) return in(*mine);
  for (const auto& [lane, holes] : lanes)
    if (Chunk* const hole = in(*holes)) return hole;
  return nullptr;
}

bool Pool::State::order_after_owners(const LaneHoles& mine, const std::vector<ByteRange>& bytes) {
  std::vector<LaneKey> ordered;
  for (const ByteRange range : bytes) {
    if (!is_home(range.first)) continue;
    const Chunk* const hole = hole_around(range.first, nullptr);
    if (hole->owner == &nobody || hole->owner == &mine) continue;
    const LaneKey lane = hole->owner->lane;
    if (std::find(ordered.begin(), ordered.end(), lane) != ordered.end()) continue;
    LaneEvents::Point point;
    if (events.record(lane, &point) != LaneEvents::Recorded::kYes) return false;
    if (!events.wait(mine.lane, point)) return false;
    ordered.push_back(lane);
  }
  return true;
}

// --- Stitched blocks ----------------------------------------------------------------------------

// What the lender needs soon costs it requests that miss: it goes only where more memory would have
// to be held than may be.
Chunk* Pool::State::stitch_spared(End end, LaneHoles& mine, Bytes size, Growth growth) noexcept {
  for (const Spare spare : {Spare::kThisStep, Spare::kLong, Spare::kSoon, Spare::kNow}) {
    const bool grows = may_grow(growth_for(end, mine, size), size);
    if (Chunk* const block = stitch_again(mine, size, spare)) return block;
    // mutant: parts-dense
    if (growth != Growth::kFree && !grows)
      if (Chunk* const block = stitch_parts(end, mine, size, spare, true)) return block;
    if (Chunk* const block = stitch(end, mine, size, spare)) return block;
    if (lender == nullptr || grows) break;
  }
  return nullptr;
}

Chunk* Pool::State::stitch_again(LaneHoles& mine, Bytes size, Spare spare) noexcept {
  if (!stitching || stitches.idle() == 0) return nullptr;
  try {
    std::optional<std::vector<ByteRange>> offered;
    const auto is_offered = [&](ByteRange bytes) {
      if (!offered) lender->offer(spare, &offered.emplace());
      const auto after =
          std::upper_bound(offered->begin(), offered->end(), bytes.first,
                           [](Bytes at, ByteRange range) { return at < range.last; });
      return after != offered->end() && after->first <= bytes.first && bytes.last <= after->last;
    };
    Stitch* const stitch = stitches.find(size, [&](ByteRange bytes) {
      if (!is_home(bytes.first)) return is_offered(bytes);
      const Chunk* const hole = hole_around(bytes.first, &mine);
      return hole != nullptr && hole->last() >= bytes.last;
    });
    return stitch == nullptr ? nullptr : live_on(*stitch, mine, size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

Chunk* Pool::State::stitch(End end, LaneHoles& mine, Bytes size, Spare spare) noexcept {
  if (!stitching || size > kMaxBytes / 2) return nullptr;
  const bool others = spare == Spare::kAny;
  try {
    FreePages free = free_pages(mine, spare);
    if (free.bytes < size) {
      if (others) return nullptr;
      // Not where to grow takes no more than that.
      const Bytes missing = align_up(size - free.bytes, unit);
      if (missing >= growth_for(end, mine, size)) return nullptr;
      if (spare != Spare::kNow && !may_grow(missing, size)) return nullptr;
      // mutant: target-missing
      if (!slab.prepare(4) || !grow_by(end, mine, missing)) return nullptr;
      free = free_pages(mine, spare);
      if (free.bytes < size) return nullptr;
    }
    const std::vector<ByteRange> behind = choose(free, size);
    // mutant: s5-pieces
    if (others && !order_after_owners(mine, behind)) return nullptr;
    Stitch* const stitch = stitches.make(behind);
    return stitch == nullptr ? nullptr : live_on(*stitch, mine, size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

Chunk* Pool::State::live_on(Stitch& stitch, LaneHoles& mine, Bytes size) noexcept {
  if (!slab.prepare(2 * stitch.behind.size() + 5)) return nullptr;
  // What may fail comes first.
  const bool lent = Stitches::for_each_piece(stitch, size, [&](ByteRange piece) {
    if (is_home(piece.first)) return true;
    if (!lender->lend(mine.lane, piece)) return false;
    stitch.lent.push_back(piece.first);
    return true;
  });
  if (!lent) {
    for (const Bytes first : std::exchange(stitch.lent, {})) lender->take_back(first);
    return nullptr;
  }
  Stitches::for_each_piece(stitch, size, [&](ByteRange piece) {
    if (is_home(piece.first))
      // mutant: pages-stitched
      stitch.pieces.push_back(
          take_out(hole_around(piece.first, nullptr), piece, Chunk::Kind::kStitched));
    return true;
  });
  Chunk* const block = slab.take();
  block->pointer = pointer_at(stitch.first + stitch.skipped);
  block->size = size;
  block->kind = Chunk::Kind::kLive;
  block->stitch = &stitch;
  stitches.take(stitch, block);
  ++stats.stitched;
  tell_stitched(stitch, false);
  return block;
}

void Pool::State::tell_stitched(const Stitch& stitch, bool home) noexcept {
  if (!options.moved || counts_at_home) return;
  Bytes at = stitch.block->first();
  Stitches::for_each_piece(stitch, stitch.block->size, [&](ByteRange piece) {
    void* const there = pointer_at(at);
    void* const here = pointer_at(piece.first);
    options.moved(home ? here : there, home ? there : here, piece.size(), false);
    at += piece.size();
    return true;
  });
}

void Pool::State::count_at_home(bool home) noexcept {
  if (home == counts_at_home) return;
  counts_at_home = false;
  for (const Stitch& stitch : stitches.live()) tell_stitched(stitch, home);
  counts_at_home = home;
}

// --- Pages that move ----------------------------------------------------------------------------

std::vector<ByteRange> Pool::State::leaving(const std::vector<LaneHoles*>& of, Bytes wanted,
                                            Bytes room) {
  struct Larger {
    const Chunk* hole = nullptr;
    ByteRange whole;
  };
  std::vector<ByteRange> chosen;
  std::vector<Larger> larger_ones;
  Bytes rest = wanted;
  const Chunk* last = nullptr;
  // Neighbours are one range where one hole has them: another hole may follow it at once.
  const auto take = [&](const Chunk* hole, ByteRange bytes) {
    // mutant: pages-neighbours
    if (std::exchange(last, hole) == hole && chosen.back().last == bytes.first)
      chosen.back().last = bytes.last;
    else
      chosen.push_back(bytes);
    rest -= std::min(rest, bytes.size());
  };
  for (LaneHoles* const holes : of)
    for (const HoleTree& tree : holes->trees)
      tree.for_each(grain, [&](const Chunk* hole) {
        const ByteRange whole = whole_handles(hole);
        if (whole.first >= whole.last || rest < grain) return;
        if (whole.size() <= rest)
          take(hole, whole);
        else if (!device.properties().aliases)
          take(hole, {whole.first, whole.first + rest / grain * grain});
        else
          larger_ones.push_back({hole, whole});
      });
  // Single handles of what is too large; then the smallest of the others, where there is room.
  std::optional<Larger> more;
  for (const auto& [hole, whole] : larger_ones)
    for (Bytes at = whole.first; at < whole.last && rest != 0;) {
      const ByteRange handle = handle_at(at);
      at = handle.last;
      if (handle.size() <= rest)
        take(hole, handle);
      else if (!more || handle.size() < more->whole.size())
        more = {hole, handle};
    }
  // mutant: handle-moves
  if (rest != 0 && more && more->whole.size() <= room - (wanted - rest))
    take(more->hole, more->whole);
  return chosen;
}

std::size_t Pool::State::move_pages(void* to, std::size_t count, std::size_t room, LaneKey lane,
                                    bool others) noexcept {
  LaneHoles* const mine = holes_of(lane);
  if (!maps || mine == nullptr || count == 0) return 0;
  try {
    std::vector<LaneHoles*> of{&nobody};
    if (mine != &nobody) of.push_back(mine);
    if (others)
      for (const auto& [other, holes] : lanes)
        if (holes.get() != mine) of.push_back(holes.get());
    std::vector<ByteRange> chosen = leaving(of, count * page, room * page);
    const bool aliases = device.properties().aliases;
    if (chosen.empty() || !slab.prepare(2 * chosen.size() + 4)) return 0;
    moved.reserve(moved.size() + chosen.size());
    if (!aliases && asynchronous) return 0;
    // mutant: s5-pages-went
    if (others && !order_after_owners(*mine, chosen)) return 0;
    if (aliases) {
      if (moved.size() > kMostMoved) return 0;
      std::vector<const void*> from;
      from.reserve(room);
      for (const ByteRange range : chosen)
        for (Bytes at = range.first; at < range.last; at += page) from.push_back(pointer_at(at));
      if (!device.alias(to, from.data(), from.size()).ok()) return 0;
    }
    std::size_t pages = 0;
    // One event a lane: those before it did what is done on their pages.
    const LaneHoles* ended = nullptr;
    Moved end;
    for (ByteRange range : chosen) {
      // mutant: pages-stale
      stitches.give_up_over(range);
      Chunk* const hole = hole_around(range.first, nullptr);
      LaneHoles* const owner = hole->owner;
      std::byte* const there = static_cast<std::byte*>(to) + pages * page;
      if (!aliases) {
        pages += move_or_return(there, &range) / page;
        if (range.size() == 0) continue;
      } else {
        pages += range.size() / page;
        if (options.moved) options.moved(there, pointer_at(range.first), range.size(), true);
      }
      // mutant: pages-kept
      Chunk* const chunk = take_out(hole, range, Chunk::Kind::kMoved);
      // mutant: pages-counted
      stats.reserved -= range.size();
      // mutant: pages-proof
      if (!aliases || owner == &nobody) {
        moved.push_back({chunk, {}, 0});
        continue;
      }
      if (std::exchange(ended, owner) != owner) {
        end = {};
        if (events.record(owner->lane, &end.point) != LaneEvents::Recorded::kYes)
          end.proof = events.synchronizations() + 1;
      }
      moved.push_back({chunk, end.point, end.proof});
    }
    unmap_moved();
    return pages;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

// Where pages cannot move, or do not, they go back to the device.
Bytes Pool::State::move_or_return(std::byte* to, ByteRange* pages) noexcept {
  const Bytes at_once = device.properties().move_bytes;
  Bytes at = pages->first;
  while (at_once != 0 && at < pages->last) {
    const Bytes end = std::min(pages->last, align_down(at, at_once) + at_once);
    if (!device.move(to + (at - pages->first), pointer_at(at), end - at).ok()) break;
    at = end;
  }
  const Bytes moved_bytes = at - pages->first;
  if (at < pages->last && !device.decommit(pointer_at(at), pages->last - at).ok()) pages->last = at;
  return at_once == 0 ? pages->size() : moved_bytes;
}

bool Pool::State::let_go_of(ByteRange pages) noexcept {
  unmap_moved();
  // Pages that moved here are behind stitches that know them by their addresses before.
  // mutant: pages-given-up
  stitches.unmap();
  return stitches.drop_over(pages) && moved.empty();
}

void Pool::State::unmap_moved() noexcept {
  if (moved.empty()) return;
  const bool mapped_still = device.properties().aliases;
  std::erase_if(moved, [&](const Moved& entry) {
    // mutant: s5-unmap
    if (entry.proof > events.synchronizations() || !events.reached(entry.point)) return false;
    if (mapped_still && !device.decommit(entry.chunk->pointer, entry.chunk->size).ok())
      return false;
    end_pages(entry.chunk);
    return true;
  });
  for (const auto& segment : segments) shrink(*segment);
}

}  // namespace berth
