#include "csrc/pool/state.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

// Parts of pages, where stitched blocks begin and end.
namespace berth {
namespace {

// Of pages that others use as well: ends of pages, and beginnings, smallest first.
struct Parts {
  std::vector<ByteRange> ends, beginnings;

  void add(ByteRange hole, Bytes page) {
    const Bytes after = align_up(hole.first, page), before = align_down(hole.last, page);
    if (hole.first < after && after <= hole.last) ends.push_back({hole.first, after});
    if (hole.first <= before && before < hole.last) beginnings.push_back({before, hole.last});
  }
  void sort() {
    std::sort(beginnings.begin(), beginnings.end(), [](ByteRange a, ByteRange b) {
      return a.size() != b.size() ? a.size() < b.size() : a.first < b.first;
    });
  }
};

// What a block is made of: the end of a page, whole pages, the beginning of another.
struct Fit {
  std::optional<ByteRange> end, beginning;
  Bytes whole = 0;  // bytes of the pages between
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
  const auto consider_end = [&](std::optional<ByteRange> end) {
    const Bytes rest = size - (end ? end->size() : 0), last = rest % page;
    consider({end, {}, align_up(rest, page), align_up(rest, page) - rest});
    if (last == 0) return;
    auto part = std::lower_bound(parts.beginnings.begin(), parts.beginnings.end(), last,
                                 [](ByteRange one, Bytes least) { return one.size() < least; });
    // No page twice in a stitch: once it is free as a whole, both parts would reach for the middle.
    if (end && part != parts.beginnings.end() && part->first == end->last - page) ++part;
    if (part == parts.beginnings.end()) return;
    consider({end, ByteRange{part->first, part->first + last}, rest - last, part->size() - last});
  };
  consider_end({});
  for (const ByteRange end : parts.ends)
    if (end.size() < size) consider_end(end);
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
    const auto add = [&](const LaneHoles& holes) {
      for (const HoleTree& tree : holes.trees)
        tree.for_each(1, [&](const Chunk* hole) {
          parts.add({hole->first(), hole->last()}, page);
        });
    };
    add(mine);
    if (&mine != &nobody) add(nobody);
    if (others)
      for (const auto& [lane, holes] : lanes)
        if (holes.get() != &mine) add(*holes);
    parts.sort();
    free = free_pages(mine, spare);
    return best_fit(parts, size, page);
  };
  try {
    Fit fit = find();
    if (free.bytes < fit.whole) {
      if (!grows || !slab.prepare(4)) return nullptr;
      const Bytes missing = align_up(fit.whole - free.bytes, unit);
      // Not where to grow takes no more than that.
      if (missing >= growth_for(end, mine, size)) return nullptr;
      if (spare == Spare::kThisStep && !may_grow(missing, size)) return nullptr;
      bool fresh = false;
      if (grow(end, mine, missing + beside_edge(end, mine, size), &fresh) == nullptr)
        return nullptr;
      fit = find();
      if (free.bytes < fit.whole) return nullptr;
    }
    if (!grows && !fit.end && !fit.beginning) return nullptr;
    std::vector<ByteRange> pieces;
    free.tails.clear();
    if (fit.whole != 0) pieces = choose(free, fit.whole, page);
    if (fit.end) pieces.insert(pieces.begin(), *fit.end);
    if (fit.beginning) pieces.push_back(*fit.beginning);
    if (others && !order_after_owners(mine, pieces)) return nullptr;
    // The pages of the parts.
    if (fit.end) pieces.front().first = fit.end->last - page;
    if (fit.beginning) pieces.back().last = fit.beginning->first + page;
    Stitch* const stitch = stitches.make(pieces, fit.end ? page - fit.end->size() : 0);
    return stitch == nullptr ? nullptr : live_on(*stitch, mine, size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace berth
