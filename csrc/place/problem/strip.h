#pragma once

#include "csrc/place/problem/conflicts.h"

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace berth::place {

// Buffers over sections: time with everything dropped but what conflicts.
//
// A section is a maximal clique; it opens at the first birth after an end. Item i covers
// sections [first, last), on a ring modulo `sections` (then last may lie behind it, by at most one
// round, and first < sections). Items conflict exactly where their sections intersect.
struct Strip {
  struct Item {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    Index buffer = 0;
    std::uint64_t length = 0;  // ticks
    Bytes size = 0;
    Bytes unit = 1;
  };
  // A pinned buffer: bytes that are taken in some sections. No two obstacles share a byte in a
  // section.
  struct Obstacle {
    static constexpr Index kMerged = ~Index{0};  // of what several fixed arcs take
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    Bytes begin = 0;
    Bytes end = 0;
    Index buffer = 0;
  };
  std::uint32_t sections = 0;
  bool ring = false;
  std::uint32_t group = 0;  // of its lane: strips of two groups share no byte
  std::vector<Item> items;
  std::vector<Obstacle> obstacles;
  // Buffers alive in every section lie below all others, in this order, and end here; but those
  // that would shift the others off their alignment are among the items.
  std::vector<std::pair<Index, Bytes>> bottom;  // buffer and offset
  Bytes base = 0;
  Bytes unit = 1;  // largest alignment of all
};

// One buffer's time on a line or a circle, and where it is if it may not move.
struct Arc {
  Index buffer = 0;
  std::uint64_t birth = 0;
  std::uint64_t length = 0;
  std::optional<Bytes> fixed = {};
};

// The strip of arcs that conflict exactly where their ticks intersect, on a circle of `period`
// ticks or a line (0). Fixed arcs are obstacles. Where there are any, or on `keep_whole`, those
// alive in every section are items. O(n log n).
[[nodiscard]] Strip make_strip(const Conflicts& conflicts, std::span<const Arc> arcs,
                               std::uint64_t period, bool keep_whole = false);

// The same where fixed arcs may share ticks and bytes: what they take together becomes obstacles.
// Ticks in which nothing else lives are dropped. O(n log n) and the sections of all obstacles.
[[nodiscard]] Strip make_strip_around(const Conflicts& conflicts, std::vector<Arc> arcs,
                                      std::uint64_t period);

// One strip a lane; nothing where the problem has forks, or pins in one of several lanes: strips
// cannot say who of those conflicts. Nor what edges between lanes allow: the strips side by side
// are legal, but may not be the best.
[[nodiscard]] std::optional<std::vector<Strip>> make_strips(const Conflicts& conflicts);

// The largest load over the sections, strip.base included, and where obstacles end: no placement of
// the strip is lower.
[[nodiscard]] Bytes max_load(const Strip& strip);

}  // namespace berth::place
