#pragma once

#include "csrc/standin/vector_clock.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace berth::standin {

// The last accesses to every byte of memory, for the happens-before checker.
//
// Addresses are plain numbers, ranges half-open. For each byte it keeps the last write and the
// reads since then that no later access covers. Not thread-safe. An operation costs O(log n) and
// the ranges it touches.
class Accesses {
 public:
  enum class Kind { kRead, kWrite };

  struct Access {
    Epoch epoch;
    Kind kind = Kind::kRead;
  };

  // An earlier access and where it met the later one.
  struct Conflict {
    Access earlier;
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
  };

  // The first access to [begin, end) that `clock` does not cover. `kind` is what would follow: a
  // read conflicts with writes only, a write with both.
  [[nodiscard]] std::optional<Conflict> find_conflict(std::uintptr_t begin, std::uintptr_t end,
                                                      Kind kind, const VectorClock& clock) const;

  // Notes an access by `epoch`, whose clock is `clock`: a write forgets what it covers.
  void add(std::uintptr_t begin, std::uintptr_t end, Access access, const VectorClock& clock);

  // Forgets [begin, end): the memory was given back.
  void erase(std::uintptr_t begin, std::uintptr_t end);

 private:
  struct AccessedRange {
    std::uintptr_t end = 0;
    std::vector<Access> accesses;
  };
  using Ranges = std::map<std::uintptr_t, AccessedRange>;

  Ranges::iterator split(std::uintptr_t address);
  [[nodiscard]] Ranges::const_iterator first_touching(std::uintptr_t address) const;

  Ranges ranges_;  // by begin, disjoint
};

}  // namespace berth::standin
