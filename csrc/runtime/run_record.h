#pragma once

#include "csrc/trace/trace.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace berth {

// What a run did lately, entry by entry, in chunks: the recording of mode learn in memory.
//
// Bounded: kMostChunks chunks, 32 MiB, whatever comes; then the oldest chunk is written anew. A
// share keeps its chunks while it lives, so that there are at most twice as many. Nothing here
// allocates or throws but make_chunk(), which is called without the allocator's lock: add() writes
// into chunks that were supplied before. Entries have positions, which count up from 0.
//
// Not thread-safe: the allocator's lock covers it; of a share, that nobody writes what it shows.
class RunRecord {
 public:
  enum class Kind : std::uint8_t { kRequest, kFree, kUse, kMark };
  struct Entry {
    trace::BlockId id = 0;
    Bytes bytes = 0;
    std::uint32_t lane = 0;
    trace::Tag tag = 0;
    Kind kind = Kind::kRequest;
  };
  static_assert(sizeof(Entry) == 32);
  static constexpr std::size_t kChunkEntries = 4096;
  static constexpr std::size_t kMostChunks = 256;
  static constexpr std::size_t kMostEntries = kChunkEntries * kMostChunks;
  // Ready beside those in use: whoever adds supplies another before so many entries more have come.
  static constexpr std::size_t kSpareChunks = 2;
  // What it holds of a longer run at any time.
  static constexpr std::size_t kHeldEntries = kChunkEntries * (kMostChunks - kSpareChunks - 1);
  using Chunk = std::array<Entry, kChunkEntries>;

  // Entries that stay as they are, whatever is added. O(chunks) to take.
  class Share {
   public:
    Share() { chunks_.reserve(kMostChunks); }
    template <class Visit>
    void for_each(Visit visit) const {
      for (std::size_t i = 0; i < count_; ++i) {
        const std::size_t at = first_ + i;
        visit((*chunks_[at / kChunkEntries])[at % kChunkEntries]);
      }
    }
    [[nodiscard]] std::size_t size() const noexcept { return count_; }

   private:
    friend class RunRecord;
    std::vector<std::shared_ptr<const Chunk>> chunks_;
    std::size_t first_ = 0, count_ = 0;
  };

  // False where there is no room: the entry is lost.
  [[nodiscard]] bool add(const Entry& entry) noexcept;

  // Positions of the oldest entry that is kept, and past the newest.
  [[nodiscard]] std::uint64_t begin() const noexcept { return begin_; }
  [[nodiscard]] std::uint64_t end() const noexcept { return end_; }

  // Entries before the position are not needed any more.
  void drop_before(std::uint64_t position) noexcept;

  // Whether a chunk more is wanted, so that add() has room.
  [[nodiscard]] bool wants_chunk() const noexcept {
    return spare_ < kSpareChunks && used_ + spare_ < kMostChunks;
  }
  // Null where host memory is short. Its pages are there: who writes it first takes no page faults.
  [[nodiscard]] static std::shared_ptr<Chunk> make_chunk() noexcept;
  // Does nothing where none is wanted (any more).
  void supply(std::shared_ptr<Chunk>& chunk) noexcept;
  [[nodiscard]] std::size_t chunk_count() const noexcept { return used_ + spare_; }

  // All from `position` on, into an empty share. Throws nothing: a share has room.
  void share(std::uint64_t position, Share& share) noexcept;

 private:
  struct Slot {
    std::shared_ptr<Chunk> chunk;
    bool shared = false;  // somebody may read it: it is not written anew
  };
  [[nodiscard]] Slot& slot(std::size_t index) noexcept {
    return ring_[(first_ + index) % kMostChunks];
  }
  void drop_oldest() noexcept;

  std::array<Slot, kMostChunks> ring_;  // from first_ on: used_ chunks, then spare_ ones
  std::size_t first_ = 0, used_ = 0, spare_ = 0;
  std::uint64_t base_ = 0;  // position of the first entry of the oldest chunk
  std::uint64_t begin_ = 0, end_ = 0;
};

}  // namespace berth
