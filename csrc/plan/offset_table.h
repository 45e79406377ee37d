#pragma once

#include "csrc/core/bytes.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace berth {

// Numbers distinct offsets: a hash table, at most half full, so that a look-up is one probe or two
// whatever the arena's size.
//
// Multiplicative hashing (Knuth, The Art of Computer Programming 3, section 6.4) of offset /
// alignment, linear probing, 16 bytes a place. insert() is amortised O(1).
class OffsetTable {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  explicit OffsetTable(Bytes alignment = 1) : unit_(std::countr_zero(alignment)) { resize(8); }

  // The number of an offset, or kNone. No multiple of the alignment needed.
  [[nodiscard]] std::uint32_t find(Bytes offset) const noexcept {
    for (std::size_t i = hash(offset);; i = (i + 1) & mask_) {
      const Place& place = places_[i];
      if (place.number == kNone || place.offset == offset) return place.number;
    }
  }

  // The number of an offset: `number` where it is new. Requires number != kNone.
  std::uint32_t insert(Bytes offset, std::uint32_t number) {
    std::size_t i = hash(offset);
    for (; places_[i].number != kNone; i = (i + 1) & mask_) {
      if (places_[i].offset == offset) return places_[i].number;
    }
    places_[i] = {offset, number};
    if (2 * ++size_ > places_.size()) {
      for (const Place& old : resize(2 * places_.size())) {
        if (old.number != kNone) *free_place(old.offset) = old;
      }
    }
    return number;
  }

  // Numbers an offset anew. Requires that it was inserted.
  void renumber(Bytes offset, std::uint32_t number) noexcept {
    std::size_t i = hash(offset);
    while (places_[i].offset != offset || places_[i].number == kNone) i = (i + 1) & mask_;
    places_[i].number = number;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Place {
    Bytes offset = 0;
    std::uint32_t number = kNone;
  };

  [[nodiscard]] std::size_t hash(Bytes offset) const noexcept {
    return static_cast<std::size_t>((offset >> unit_) * 0x9E3779B97F4A7C15u >> shift_);
  }
  Place* free_place(Bytes offset) noexcept {
    std::size_t i = hash(offset);
    while (places_[i].number != kNone) i = (i + 1) & mask_;
    return &places_[i];
  }
  // Empties the table; returns what was in it.
  std::vector<Place> resize(std::size_t places) {
    mask_ = places - 1;
    shift_ = 64 - std::countr_zero(places);
    return std::exchange(places_, std::vector<Place>(places));
  }

  std::vector<Place> places_;
  std::size_t size_ = 0;
  std::size_t mask_ = 0;
  int unit_ = 0;  // log2 of the alignment
  int shift_ = 0;
};

}  // namespace berth
