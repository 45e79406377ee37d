#pragma once

#include "csrc/place/problem/strip.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace berth::place {

// Rules of the exact search that can be switched off: each only saves work.
struct ExactRules {
  bool peel = true;        // what cannot matter is put back at the end
  bool split = true;       // at cuts that nothing crosses
  bool twins = true;       // equal buffers in one order
  bool look_ahead = true;  // what was passed over must be lifted by something that can still come
  bool failed = true;      // remember what was refuted
  bool units = true;       // count in the greatest common divisor, not in bytes
};

// What the exact search works on: buffers of one strip that hang together, in units such that all
// sizes, alignments and walls are whole numbers.
//
// An offset v of the part lies at byte origin + v * unit; legal are start <= v, v + size <=
// capacity.
struct ExactPart {
  using Value = std::int64_t;
  struct Item {
    std::uint32_t first = 0, last = 0;  // sections, as in Strip
    std::uint32_t item = 0;             // of the strip
    std::uint64_t length = 0;           // ticks
    Value size = 0;
    Value align = 1;
  };
  struct Wall {  // bytes that are taken, in some sections
    std::uint32_t first = 0, last = 0;
    Value begin = 0, end = 0;
  };
  std::uint32_t sections = 0;
  bool ring = false;  // nothing cuts it
  Value start = 0;
  Value capacity = 0;
  std::vector<Item> items;  // by first
  std::vector<Wall> walls;
};

// A strip at a capacity, taken apart for the exact search.
struct ExactParts {
  Bytes origin = 0;
  Bytes unit = 1;
  Bytes capacity = 0;  // the next lower that differs: what a refutation refutes, up to the next
  std::vector<ExactPart> parts;
  // Items of the strip that fit whatever the others do, in the order in which they must be put
  // back.
  std::vector<std::uint32_t> peeled;
  std::size_t largest = 0;  // items of a part
};

// Requires max_load(strip) <= capacity. O(n log n) a round of peeling on a line, O(n^2) on a ring.
[[nodiscard]] ExactParts make_exact_parts(const Strip& strip, Bytes capacity,
                                          const ExactRules& rules);

// Puts `parts.peeled` into the lowest holes; all others have their final offsets.
void put_back_peeled(const Strip& strip, const ExactParts& parts, std::vector<Bytes>& offsets);

}  // namespace berth::place
