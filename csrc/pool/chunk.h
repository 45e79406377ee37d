#pragma once

#include "csrc/device/lane_events.h"
#include "csrc/pool/pool.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace berth {

struct LaneHoles;
struct Segment;
struct Stitch;

// A piece of a segment: a live block, a hole, a block that waits for other lanes or is pinned, a
// piece of a stitched block, or addresses without pages. The chunks of a segment follow each other
// without a gap and form a list in address order. A stitched block lies in no segment.
//
// Laid out by cache lines: the block, the links and what a search reads, the rest.
struct alignas(64) Chunk : PoolBlock {
  enum class Kind : std::uint8_t {
    kLive,
    kHole,
    kWaiting,   // freed
    kStitched,  // a stitched block has it
    kMoved,     // its pages are somewhere else; its addresses are still to be unmapped
    kReturned,  // no memory behind it
  };

  // Whether its addresses are those of memory that is nobody else's.
  [[nodiscard]] bool has_bytes() const noexcept {
    return kind == Kind::kLive || kind == Kind::kHole || kind == Kind::kWaiting;
  }
  [[nodiscard]] Bytes first() const noexcept { return reinterpret_cast<Bytes>(pointer); }
  [[nodiscard]] Bytes last() const noexcept { return first() + size; }

  // Links of the one tree or list that the chunk is in, by its kind.
  Chunk* left = nullptr;
  Chunk* right = nullptr;
  Chunk* parent = nullptr;
  Bytes largest = 0;          // size of the largest hole of its subtree
  Chunk* previous = nullptr;  // in the segment
  Chunk* next = nullptr;
  Segment* segment = nullptr;
  LaneHoles* owner = nullptr;  // of a hole: who may take it; of a block: who will own its hole
  Stitch* stitch = nullptr;    // of a stitched block
  std::uint32_t priority = 0;
  Kind kind = Kind::kHole;
  std::uint64_t proof = 0;  // of a waiting block: comes with this synchronisation of the device
  std::uint32_t pins = 0;   // of a block: by captured graphs
  std::uint32_t epoch = 0;  // of a hole: in which the last of its bytes came free; see LaneHoles
  std::vector<LaneEvents::Point> points;  // of a block: other lanes that use it; see WaitingChunks
};

static_assert(sizeof(Chunk) == 192 && sizeof(PoolBlock) == 64);

// Chunks by the slab, so that the steady state never calls malloc. Addresses are stable.
class ChunkSlab {
 public:
  // Makes sure that `count` take() calls succeed. False where the host's memory is exhausted.
  [[nodiscard]] bool prepare(std::size_t count) noexcept {
    while (free_count_ < count)
      if (!add_slab()) return false;
    return true;
  }
  // Requires a chunk that prepare() made sure of.
  [[nodiscard]] Chunk* take() noexcept {
    Chunk* chunk = free_;
    free_ = chunk->next;
    --free_count_;
    chunk->previous = chunk->next = chunk->left = chunk->right = chunk->parent = nullptr;
    chunk->segment = nullptr;
    chunk->stitch = nullptr;
    chunk->owner = nullptr;
    chunk->requested = 0;
    return chunk;
  }
  void give(Chunk* chunk) noexcept {
    chunk->next = free_;
    free_ = chunk;
    ++free_count_;
  }

 private:
  static constexpr std::size_t kSlab = 128;

  bool add_slab() noexcept {
    try {
      slabs_.reserve(slabs_.size() + 1);
      slabs_.push_back(std::make_unique<Chunk[]>(kSlab));
    } catch (const std::bad_alloc&) {
      return false;
    }
    for (std::size_t i = kSlab; i-- > 0;) {
      Chunk& chunk = slabs_.back()[i];
      // xorshift32 (Marsaglia 2003): priorities of a treap need no better randomness.
      random_ ^= random_ << 13;
      random_ ^= random_ >> 17;
      random_ ^= random_ << 5;
      chunk.priority = random_;
      give(&chunk);
    }
    return true;
  }

  std::vector<std::unique_ptr<Chunk[]>> slabs_;
  Chunk* free_ = nullptr;
  std::size_t free_count_ = 0;
  std::uint32_t random_ = 0x9E3779B9;
};

}  // namespace berth
