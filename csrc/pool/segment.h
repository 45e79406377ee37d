#pragma once

#include "csrc/pool/chunk.h"
#include "csrc/pool/hole_tree.h"

#include <cstdint>

namespace berth {

// Where a chunk lies. The first two values are those of the Mobility that goes there.
enum class End : std::uint8_t { kLow = 0, kHigh = 1, kResident = 2 };
inline constexpr int kEnds = 3;

// Holes that one lane may take, by end.
//
// The lane's frees are counted by epochs, which end with a point in its work. When that is reached
// all holes of the epoch and of those before are nobody's: any lane may take them without an event.
struct LaneHoles {
  LaneKey lane = 0;
  std::uint32_t epoch = 1;  // now
  bool ended = false;       // the epoch before now waits for:
  LaneEvents::Point end_of_epoch;
  bool may_go = false;  // Device::may_go(): only a synchronisation proves its holes
  bool used = true;     // of forget_lanes(): a chunk is the lane's
  HoleTree trees[kEnds];

  void order_by_size() noexcept {
    for (HoleTree& tree : trees) tree.order_by_size();
  }
  [[nodiscard]] bool empty() const noexcept {
    return trees[0].empty() && trees[1].empty() && trees[2].empty();
  }
  // O(holes).
  [[nodiscard]] Bytes bytes() const noexcept {
    Bytes sum = 0;
    for (const HoleTree& tree : trees)
      for (const Chunk* hole = tree.front(); hole != nullptr; hole = HoleTree::after(hole))
        sum += hole->size;
    return sum;
  }
  [[nodiscard]] HoleTree& at(End end) noexcept { return trees[static_cast<int>(end)]; }
};

// A stretch of addresses [first, last) covered by chunks without a gap: an end of the range, the
// residents' area, or, where the device maps no pages, one reservation.
struct Segment {
  End end = End::kLow;
  Bytes first = 0;
  Bytes last = 0;
  Chunk* head = nullptr;  // lowest address
  Chunk* tail = nullptr;  // highest address

  // The chunk at the side that grows.
  [[nodiscard]] Chunk* edge() const noexcept { return end == End::kHigh ? head : tail; }

  // Puts `chunk` into the list after `previous`, or first where that is null.
  void link_after(Chunk* previous, Chunk* chunk) noexcept {
    chunk->segment = this;
    chunk->previous = previous;
    chunk->next = previous == nullptr ? head : previous->next;
    (chunk->previous == nullptr ? head : chunk->previous->next) = chunk;
    (chunk->next == nullptr ? tail : chunk->next->previous) = chunk;
  }
  void unlink(Chunk* chunk) noexcept {
    (chunk->previous == nullptr ? head : chunk->previous->next) = chunk->next;
    (chunk->next == nullptr ? tail : chunk->next->previous) = chunk->previous;
  }
};

}  // namespace berth
