#include "csrc/pool/state.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

// Parts of pages, where stitched blocks begin and end.
namespace berth {
namespace {

// Of handles that others use as well: ends, and beginnings, smallest first.
struct Parts {
  struct End {
    ByteRange bytes;
    Bytes handle = 0;  // where its handle begins
  };
  std::vector<End> ends;
  std::vector<ByteRange> beginnings;
  void sort() {
    std::sort(beginnings.begin(), beginnings.end(), [](ByteRange a, ByteRange b) {
      return a.size() != b.size() ? a.size() < b.size() : a.first < b.first;
    });
  }
};

// What a block is made of: the end of a handle, whole ones, the beginning of another.
struct Fit {
  std::optional<ByteRange> end, beginning;
  Bytes whole = 0;  // bytes of the handles between
  Bytes over = 0;   // that it leaves of the last page, or part
};

// The fit of fewest whole pages, and of those the one that leaves least over. The whole of an end
// is used: what it leaves of a beginning lies between two blocks.
Fit best_fit(const Parts& parts, Bytes size, Bytes page) {
  Fit best;
  best.whole = kMaxBytes;
  const auto consider = [&](const Fit& fit) {
    if (fit.whole != best.whole ? fit.whole < best.whole : fit.over < best.over) best = fit;
  };
  const auto consider_end = [&](std::optional<ByteRange> end, Bytes handle) {
    const Bytes rest = size - (end ? end->size() : 0), last = rest % page;
    consider({end, {}, align_up(rest, page), align_up(rest, page) - rest});
    const auto consider_beginning = [&](Bytes least) {
      if (least == 0) return;
      auto part = std::lower_bound(parts.beginnings.begin(), parts.beginnings.end(), least,
                                   [](ByteRange one, Bytes bytes) { return one.size() < bytes; });
      // No handle twice in a stitch: once it is free as a whole, both parts would reach for the
      // middle.
      // mutant: s5-parts-twice
      if (end && part != parts.beginnings.end() && part->first == handle) ++part;
      if (part == parts.beginnings.end()) return;
      consider(
          {end, ByteRange{part->first, part->first + least}, rest - least, part->size() - least});
    };
    consider_beginning(last);
    if (last != rest) consider_beginning(rest);
  };
  consider_end({}, 0);
  for (const auto& [bytes, handle] : parts.ends)
    if (bytes.size() < size) consider_end(bytes, handle);
  return best;
}

}  // namespace

Chunk* Pool::State::stitch_parts(End end, LaneHoles& mine, Bytes size, Spare spare,
                                 bool grows) noexcept {
  if (!stitching || size > kMaxBytes / 2) return nullptr;
  if (Chunk* const block = stitch_again(mine, size, spare)) return block;
  const bool others = spare == Spare::kAny;
  FreePages free;
  const auto find = [&] {
    Parts parts;
    const auto add_hole = [&](ByteRange hole) {
      const ByteRange first = handle_at(hole.first), last = handle_at(hole.last - 1);
      if (first.first != hole.first && first.last <= hole.last)
        parts.ends.push_back({{hole.first, first.last}, first.first});
      if (last.last != hole.last && last.first >= hole.first)
        parts.beginnings.push_back({last.first, hole.last});
    };
    const auto add = [&](const LaneHoles& holes) {
      for (const HoleTree& tree : holes.trees)
        tree.for_each(1, [&](const Chunk* hole) { add_hole({hole->first(), hole->last()}); });
    };
    add(mine);
    if (&mine != &nobody) add(nobody);
    if (others)
      for (const auto& [lane, holes] : lanes)
        if (holes.get() != &mine) add(*holes);
    free = free_pages(mine, spare);
    // mutant: parts-lent
    for (const ByteRange bytes : free.spared) add_hole(bytes);
    parts.sort();
    return best_fit(parts, size, page);
  };
  try {
    Fit fit = find();
    if (free.bytes < fit.whole) {
      if (!grows || !slab.prepare(4)) return nullptr;
      const Bytes missing = align_up(fit.whole - free.bytes, unit);
      // Not where to grow takes no more than that.
      if (missing >= growth_for(end, mine, size)) return nullptr;
      if (spare < Spare::kNow && !may_grow(missing, size)) return nullptr;
      if (!grow_by(end, mine, missing)) return nullptr;
      fit = find();
      if (free.bytes < fit.whole) return nullptr;
    }
    if (!grows && !fit.end && !fit.beginning) return nullptr;
    std::vector<ByteRange> pieces;
    free.tails.clear();
    if (fit.whole != 0) pieces = choose(free, fit.whole);
    if (fit.beginning && fit.whole != 0) {
      Bytes sum = 0;
      for (const ByteRange piece : pieces) sum += piece.size();
      if (sum != fit.whole) return nullptr;
    }
    if (fit.end) pieces.insert(pieces.begin(), *fit.end);
    if (fit.beginning) pieces.push_back(*fit.beginning);
    // mutant: s5-parts
    if (others && !order_after_owners(mine, pieces)) return nullptr;
    // The handles of the parts.
    if (fit.end) pieces.front() = handle_at(fit.end->first);
    if (fit.beginning) pieces.back() = handle_at(fit.beginning->first);
    Stitch* const stitch =
        stitches.make(pieces, fit.end ? fit.end->first - pieces.front().first : 0);
    return stitch == nullptr ? nullptr : live_on(*stitch, mine, size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace berth
