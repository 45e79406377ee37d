#pragma once

#include "csrc/place/fits/fit.h"
#include "csrc/place/problem/budget.h"
#include "csrc/place/problem/strip.h"

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace berth::place {

// First (or best) fit of a strip in a given order, obstacles first, fast enough to be run again and
// again.
//
// What is placed stands in lists in the order of offsets, one for each of some ranges of sections:
// ranges of one length overlap by half, so that a range no longer than two of its own length holds
// every short item. An item goes through one list, upwards, until a hole is found; it is entered
// into all whose ranges it meets. An item of l sections costs its scan and O(l / w) entries for the
// shortest ranges of w sections; a million take some 300 bytes each. One thread at a time.
class StripFit {
 public:
  // The strip must outlive it.
  explicit StripFit(const Strip& strip);

  // Offsets of all items, which `order` names once each; nothing where the mark would not stay
  // below `below`, or the budget (may be null) ends first.
  [[nodiscard]] std::optional<std::vector<Bytes>> run(std::span<const std::uint32_t> order, Fit fit,
                                                      Bytes below, const Budget* budget);

 private:
  struct Entry {
    Bytes begin, end;
    std::int32_t first, last;
  };
  static constexpr std::uint32_t kChunk = 64;
  struct Chunk {
    std::uint32_t size = 0;
    std::array<Entry, kChunk> entries;
  };
  // Entries by begin, in chunks of the pool.
  struct List {
    std::vector<std::uint32_t> chunks;
    std::vector<Bytes> begins;  // of each chunk's first entry
  };
  struct Level {
    std::int64_t width;      // half of a range
    std::size_t first_list;  // of lists_
    std::size_t count;
  };
  void clear();
  void insert(List& list, const Entry& entry);
  void enter(std::int64_t first, std::int64_t last, Bytes begin, Bytes end);
  [[nodiscard]] Bytes lowest_hole(const List& list, const Strip::Item& item) const;
  [[nodiscard]] Bytes tightest_hole(const List& list, const Strip::Item& item) const;
  [[nodiscard]] const List& list_of(const Strip::Item& item) const;

  const Strip& strip_;
  std::vector<Level> levels_;  // shortest ranges first
  std::vector<List> lists_;
  bool has_whole_ = false;  // the last of them holds everything, for what fits no range
  std::deque<Chunk> pool_;  // grows without a second copy
  std::uint32_t used_ = 0;  // chunks
};

}  // namespace berth::place
