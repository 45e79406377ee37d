#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/device/device.h"
#include "csrc/device/lane_events.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <utility>
#include <vector>

namespace berth {

struct Chunk;

// A range of addresses behind which the pages of several holes lie, one after the other, so that a
// block fits that fits in none of them. The pages are behind their own addresses, too: their home.
struct Stitch {
  Bytes first = 0;
  Bytes size = 0;                 // whole pages
  Bytes skipped = 0;              // of the first handle: before the block begins
  Bytes last_handle = 0;          // its size
  std::vector<ByteRange> behind;  // where its pages are at home, in order; whole pages
  // The block that lives on it, if one does, and what it took of holes, and of the lender.
  Chunk* block = nullptr;
  std::vector<Chunk*> pieces;
  std::vector<Bytes> lent;
  LaneKey lane = 0;  // whose work used it last
  std::list<Stitch>::iterator place;

  // Of one that is given up: when its addresses may be unmapped.
  LaneEvents::Point point;
  std::uint64_t proof = 0;  // with this synchronisation of the device
};

// The stitches of one pool (virtual memory stitching: Guo et al., GMLake, ASPLOS 2024, section 3).
//
// A stitch that is free again stays: it is found by its size, and what repeats makes no call of the
// device. At most kMostIdle stay, those used last; and none whose pages went elsewhere from home.
// One that is given up is unmapped when the lane that used it last has passed its present point: no
// work uses the addresses then. Nothing here blocks.
//
// Addresses are bytes from 0. Not thread-safe: the allocator's lock covers it. The device, whose
// pages may be behind several addresses, and the events outlive it.
class Stitches {
 public:
  static constexpr std::size_t kMostIdle = 256;

  Stitches(Device& device, LaneEvents& events) noexcept : device_(device), events_(events) {}
  ~Stitches();
  Stitches(const Stitches&) = delete;
  Stitches& operator=(const Stitches&) = delete;

  [[nodiscard]] bool contains(Bytes address) const noexcept { return address - first_ < size_; }

  // The idle stitch used last of as many pages as `size` bytes need whose bytes are available, or
  // null: `available(range)` says so of bytes at home. None of its handles is left unused, so that
  // none can go from home meanwhile. O(kMostIdle * pieces).
  template <class Available>
  [[nodiscard]] Stitch* find(Bytes size, Available&& available) {
    for (Stitch& stitch : idle_) {
      const Bytes room = stitch.size - stitch.skipped;
      if (room < size || room - size >= stitch.last_handle) continue;
      if (for_each_piece(stitch, size, available)) return &stitch;
    }
    return nullptr;
  }
  // Calls `visit(bytes)` for what a block of `size` bytes on a stitch has of each range behind it,
  // in order, until it is false. Returns whether it never was.
  template <class Visit>
  static bool for_each_piece(const Stitch& stitch, Bytes size, Visit&& visit) {
    Bytes skipped = stitch.skipped;
    for (std::size_t i = 0; size != 0; ++i) {
      const ByteRange range{stitch.behind[i].first + std::exchange(skipped, 0),
                            stitch.behind[i].last};
      const ByteRange piece{range.first, range.first + std::min(size, range.size())};
      if (!visit(piece)) return false;
      size -= piece.size();
    }
    return true;
  }

  // A new one, idle, of these whole pages, whose block begins `skipped` bytes, less than a page,
  // after their first. Null where the device refuses, addresses run out, or the host's memory does.
  [[nodiscard]] Stitch* make(const std::vector<ByteRange>& behind, Bytes skipped = 0) noexcept;

  // A block lives on an idle one; it is gone, and `lane` had it.
  void take(Stitch& stitch, Chunk* block) noexcept {
    stitch.block = block;
    live_.splice(live_.begin(), idle_, stitch.place);
  }
  void give(Stitch& stitch, LaneKey lane) noexcept;

  // The pages behind these bytes at home leave: no idle stitch may have them.
  void give_up_over(ByteRange home) noexcept;
  // Unmaps all that no block lives on and that has some of these pages: the device is done with all
  // of its work. False where the device refuses.
  [[nodiscard]] bool drop_over(ByteRange home) noexcept;
  // Unmaps what was given up, as far as events tell. O(given up).
  void unmap() noexcept;
  // Unmaps all idle ones, and what was given up: the device is done with all of its work.
  void drop() noexcept;

  // Those that blocks live on, in no order.
  [[nodiscard]] const std::list<Stitch>& live() const noexcept { return live_; }
  [[nodiscard]] std::size_t idle() const noexcept { return idle_.size(); }
  // Whether something that was given up still maps some of these pages: their memory would not go
  // back.
  [[nodiscard]] bool map(ByteRange home) const noexcept;
  // Whether something that was given up is still to be unmapped.
  [[nodiscard]] bool waits() const noexcept { return !given_up_.empty(); }
  // Made so far.
  [[nodiscard]] std::uint64_t made() const noexcept { return made_; }

 private:
  using Place = std::list<Stitch>::iterator;

  [[nodiscard]] bool reserve() noexcept;
  [[nodiscard]] Bytes take_addresses(Bytes size) noexcept;  // 0: there are none
  void give_addresses(Bytes first, Bytes size) noexcept;
  void give_up(Place stitch) noexcept;
  // False, and it stays, where the device refuses.
  bool unmap(Place stitch) noexcept;

  Device& device_;
  LaneEvents& events_;
  Bytes first_ = 0, size_ = 0;                // addresses of all stitches
  bool refused_ = false;                      // there are none to be had
  std::map<Bytes, Bytes> free_;               // addresses: first -> size
  std::list<Stitch> live_, idle_, given_up_;  // idle: used last first
  std::uint64_t made_ = 0;
};

}  // namespace berth
