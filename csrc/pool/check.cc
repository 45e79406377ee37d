#include "csrc/pool/state.h"

#include <fmt/format.h>

#include <map>
#include <utility>

namespace berth {

std::string Pool::State::is_valid() const {
  Bytes live = 0;
  Bytes waits = 0;
  Bytes committed = 0;
  Bytes in_pieces = 0, in_moved = 0;
  std::uint64_t blocks = 0;
  // By owner (null: no pages) and end: how many chunks and bytes its tree must hold.
  std::map<std::pair<const LaneHoles*, End>, std::pair<std::uint64_t, Bytes>> expected;
  Bytes below = 0;  // segments by address, where they are reservations
  for (const auto& segment : segments) {
    if (!maps && segment->first < below)
      return fmt::format("the segment at {:#x} lies in the one before", segment->first);
    below = segment->last;
    Bytes at = segment->first;
    const Chunk* previous = nullptr;
    for (const Chunk* chunk = segment->head; chunk != nullptr; chunk = chunk->next) {
      const auto name = [&] {
        return fmt::format("the chunk at {} of {} B", chunk->pointer, chunk->size);
      };
      if (chunk->segment != segment.get() || chunk->previous != previous)
        return name() + " is linked wrongly";
      if (chunk->first() != at) return fmt::format("{} does not start at {:#x}", name(), at);
      if (chunk->size > segment->last - at)
        return fmt::format("{} ends beyond its segment", name());
      if (chunk->size == 0 || chunk->size % options.alignment != 0 ||
          chunk->first() % options.alignment != 0)
        return name() + " is not aligned";
      at = chunk->last();
      switch (chunk->kind) {
        case Chunk::Kind::kLive:
          live += live_bytes(*chunk);
          ++blocks;
          if (table.find(chunk->pointer) != chunk) return name() + " is live and not in the table";
          if (chunk->requested > chunk->size) return name() + " is smaller than requested";
          break;
        case Chunk::Kind::kWaiting:
          waits += chunk->size;
          if (chunk->points.empty() && chunk->proof <= events.synchronizations() &&
              chunk->pins == 0)
            return name() + " waits for nothing";
          break;
        case Chunk::Kind::kHole: {
          if (previous != nullptr && previous->kind == Chunk::Kind::kHole &&
              (previous->owner == chunk->owner ||
               ((previous->owner == &nobody || chunk->owner == &nobody) &&
                !previous->owner->may_go && !chunk->owner->may_go)))
            return name() + " could coalesce with the one before";
          auto& [count, bytes] = expected[{chunk->owner, segment->end}];
          ++count;
          bytes += chunk->size;
          break;
        }
        case Chunk::Kind::kStitched:
          in_pieces += chunk->size;
          break;
        case Chunk::Kind::kMoved:
          in_moved += chunk->size;
          break;
        case Chunk::Kind::kReturned: {
          if (previous != nullptr && previous->kind == Chunk::Kind::kReturned)
            return name() + " could coalesce with the one before";
          if (chunk == segment->edge()) return name() + " has no pages and is at the edge";
          auto& [count, bytes] = expected[{nullptr, segment->end}];
          ++count;
          bytes += chunk->size;
          break;
        }
      }
      if (chunk->has_bytes() || chunk->kind == Chunk::Kind::kStitched) committed += chunk->size;
      previous = chunk;
    }
    if (segment->tail != previous || at != segment->last)
      return fmt::format("the segment at {:#x} ends at {:#x}, not {:#x}", segment->first, at,
                         segment->last);
  }
  for (const Stitch& stitch : stitches.live()) {
    const Chunk* const block = stitch.block;
    const auto name = [&] {
      return fmt::format("the stitched block at {} of {} B", block->pointer, block->size);
    };
    if (block->first() != stitch.first + stitch.skipped ||
        block->last() > stitch.first + stitch.size)
      return name() + " does not lie on its stitch";
    Bytes has = 0;
    for (const Chunk* piece : stitch.pieces) {
      if (piece->kind != Chunk::Kind::kStitched) return name() + " has a piece that is not its own";
      has += piece->size;
      in_pieces -= piece->size;
    }
    // Its bytes are those behind its addresses.
    auto piece = stitch.pieces.begin();
    const bool own = Stitches::for_each_piece(stitch, block->size, [&](ByteRange bytes) {
      if (!is_home(bytes.first)) return true;
      const bool same = piece != stitch.pieces.end() && (*piece)->first() == bytes.first &&
                        (*piece)->last() == bytes.last;
      if (same) ++piece;
      return same;
    });
    if (!own || piece != stitch.pieces.end()) return name() + " has bytes of others";
    if (stitch.lent.empty() ? has != block->size : has >= block->size)
      return fmt::format("{} has {} B", name(), has);
    if (block->kind == Chunk::Kind::kLive) {
      live += live_bytes(*block);
      ++blocks;
      if (table.find(block->pointer) != block) return name() + " is live and not in the table";
    } else {
      waits += block->size;
    }
  }
  if (in_pieces != 0) return fmt::format("{} B of pieces are in no block", in_pieces);
  for (const Moved& entry : moved) in_moved -= entry.chunk->size;
  if (in_moved != 0) return fmt::format("{} B moved, and nobody knows", in_moved);
  const auto check = [&](const LaneHoles* owner, End end, const HoleTree& tree) -> std::string {
    if (std::string error = tree.is_valid(); !error.empty()) return error;
    std::uint64_t count = 0;
    Bytes bytes = 0;
    for (const Chunk* chunk = tree.front(); chunk != nullptr; chunk = HoleTree::after(chunk)) {
      if (owner != nullptr && (chunk->kind != Chunk::Kind::kHole || chunk->owner != owner))
        return fmt::format("{} is in a tree that is not its own", chunk->pointer);
      ++count;
      bytes += chunk->size;
    }
    const auto& [want_count, want_bytes] = expected[{owner, end}];
    if (count == want_count && bytes == want_bytes && count == tree.size()) return {};
    return fmt::format("a tree holds {} holes of {} B, its segments {} of {} B", count, bytes,
                       want_count, want_bytes);
  };
  for (int end = 0; end < kEnds; ++end) {
    if (auto error = check(&nobody, static_cast<End>(end), nobody.trees[end]); !error.empty())
      return error;
    if (auto error = check(nullptr, static_cast<End>(end), returned[end]); !error.empty())
      return error;
    for (const auto& [lane, holes] : lanes)
      if (auto error = check(holes.get(), static_cast<End>(end), holes->trees[end]); !error.empty())
        return error;
  }
  Bytes listed = waiting.walk();
  for (const auto& [pointer, chunk] : pinned) {
    if (chunk->kind == Chunk::Kind::kWaiting) listed += chunk->size;
  }
  if (listed != waits || waits != stats.waiting)
    return fmt::format("{} B wait, {} B are listed, {} B are counted", waits, listed,
                       stats.waiting);
  if (live != stats.live || blocks != stats.blocks || blocks != table.size())
    return fmt::format("{} blocks of {} B are live, {} of {} B are counted, {} are in the table",
                       blocks, live, stats.blocks, stats.live, table.size());
  if (committed != stats.reserved)
    return fmt::format("{} B are committed, {} B are counted", committed, stats.reserved);
  if (maps && segments[0]->last > segments[1]->first) return "the two ends overlap";
  return {};
}

}  // namespace berth
