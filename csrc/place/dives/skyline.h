#pragma once

#include "csrc/place/dives/bit_set.h"

#include <cstdint>
#include <vector>

namespace berth::place {

// The lowest free offset of every section, as runs of equal floor (plateaus), on a line or a ring.
//
// On a ring ranges begin in the first round and may end in the second. Raising a range is
// O(log n), the lowest plateau amortised O(log n), a search O(log n).
class Skyline {
 public:
  using Floor = std::int64_t;
  struct Plateau {
    std::uint32_t first, last;  // on a ring `last` may lie in the second round
    Floor floor;
  };

  void reset(std::uint32_t sections, bool ring);

  // The lowest plateau, the leftmost of equals.
  [[nodiscard]] Plateau lowest();
  // Only one plateau is left.
  [[nodiscard]] bool flat() const noexcept { return plateaus_ == 1; }
  // The lower of the floors beside a plateau. Requires !flat().
  [[nodiscard]] Floor lower_neighbour(const Plateau& plateau) const noexcept;

  // Sets the floor of [first, last), which lies inside the plateau, to `floor`, which is higher. On
  // a flat ring first < sections, whatever round the plateau is in.
  void raise(const Plateau& plateau, std::uint32_t first, std::uint32_t last, Floor floor);

  // The largest range around x inside [begin, end) whose floors are at most `limit`, x's included.
  struct Stretch {
    std::uint32_t first, last;
  };
  [[nodiscard]] Stretch low_around(std::uint32_t x, std::uint32_t begin, std::uint32_t end,
                                   Floor limit) const noexcept;
  // The highest floor of [first, last).
  [[nodiscard]] Floor highest(std::uint32_t first, std::uint32_t last) const noexcept;

 private:
  [[nodiscard]] std::uint32_t wrap(std::uint32_t x) const noexcept {
    return x >= sections_ ? x - sections_ : x;
  }
  [[nodiscard]] std::uint32_t start_of(std::uint32_t x) const noexcept;
  [[nodiscard]] std::uint32_t next_start(std::uint32_t start) const noexcept;
  void set_start(std::uint32_t x, Floor floor);
  void clear_start(std::uint32_t x);
  void update(std::uint32_t x, Floor value) noexcept;
  void push(std::uint32_t start, Floor floor);
  [[nodiscard]] Floor highest_start(std::uint32_t first, std::uint32_t last) const noexcept;
  // The nearest start with a floor above `limit`, at most or at least x, or kNone.
  [[nodiscard]] std::uint32_t previous_start_above(std::uint32_t x, Floor limit) const noexcept;
  [[nodiscard]] std::uint32_t next_start_above(std::uint32_t x, Floor limit) const noexcept;

  std::uint32_t sections_ = 0;
  bool ring_ = false;
  std::uint32_t plateaus_ = 0;
  BitSet starts_;
  std::size_t leaves_ = 1;
  std::vector<Floor> tree_;  // floors at starts, -1 elsewhere; largest of each subtree
  struct Entry {
    Floor floor;
    std::uint32_t start;
  };
  std::vector<Entry> heap_;  // of plateaus, with entries that are no longer true
};

}  // namespace berth::place
