#pragma once

#include "csrc/place/fits/first_fit.h"
#include "csrc/place/problem/conflicts.h"
#include "csrc/place/problem/time_index.h"

#include <berth/place.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace berth::place {

// A placement in which single buffers are taken out and put elsewhere.
//
// What is placed is kept in address order, so that a hole is found in one pass over it. Beyond
// kScan buffers the pass goes over those alive together with the one to place only, found by time
// and then sorted.
class Rearrangement {
 public:
  static constexpr std::size_t kScan = std::size_t{1} << 15;

  explicit Rearrangement(const Conflicts& conflicts, std::size_t scan = kScan);

  // Many at once: `offsets` one a buffer, of which those in `placed` count.
  void start(std::vector<Bytes> offsets, std::span<const Index> placed);
  void put(Index i, Bytes offset);
  void take(Index i);

  // `preferred` where it is free, else the lowest hole that ends at `capacity` or below.
  [[nodiscard]] std::optional<Bytes> find_place(Index i, std::optional<Bytes> preferred,
                                                Bytes capacity);
  // Makes room for `i`: at most `radius` others, none of them pinned, move to holes, or in their
  // turn make as many others move, and it takes their bytes. All that moved but `i`, ascending;
  // nothing, and no change, where that fails.
  [[nodiscard]] std::optional<std::vector<Index>> make_room(Index i, unsigned radius,
                                                            Bytes capacity);
  // Those alive together with `i` that share a byte with [offset, offset + its size).
  [[nodiscard]] std::vector<Index> in_the_way(Index i, Bytes offset);

  [[nodiscard]] const std::vector<Bytes>& offsets() const noexcept { return offsets_; }
  [[nodiscard]] Bytes high_water_mark() const noexcept;

 private:
  struct PlacedBuffer {
    Bytes first, last;
    std::uint64_t birth, end;  // of the buffer; all of time where it wraps around or lanes are many
    Index buffer;
    [[nodiscard]] bool meets(const PlacedBuffer& other) const noexcept {
      return birth < other.end && other.birth < end;
    }
    bool operator<(const PlacedBuffer& other) const noexcept {
      return first != other.first ? first < other.first : buffer < other.buffer;
    }
  };
  [[nodiscard]] PlacedBuffer placed_buffer(Index i) const noexcept;
  [[nodiscard]] std::span<const PlacedBuffer> near(Index i);
  struct Move {
    Index buffer;
    Bytes from;
  };
  [[nodiscard]] bool push_in(Index i, unsigned radius, Bytes capacity, unsigned depth);
  [[nodiscard]] std::vector<Bytes> windows(Index i, unsigned radius, Bytes capacity);

  const Conflicts& conflicts_;
  bool scan_;
  std::vector<TimeIndex> lanes_;  // where not scan_
  std::vector<bool> placed_;
  std::vector<Bytes> offsets_;
  std::vector<PlacedBuffer> by_address_;  // ascending; where scan_
  std::vector<PlacedBuffer> found_;
  std::vector<bool> fixed_;  // pinned, or pushing others out
  std::vector<Move> moves_;  // since make_room() began
  std::size_t tries_ = 0;    // left
};

}  // namespace berth::place
