#pragma once

#include "csrc/core/bytes.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

namespace berth::cli {

// Finds the largest batch whose need is within a limit, by measuring few: need grows about as a
// straight line, so a try is where the line through the two nearest measures meets the limit; and
// from there, since need goes by pages, in steps that double until the limit lies between two
// measures, which are halved.
//
// Where need falls with a larger batch now and then, as segments are rounded, it is the largest of
// those measured. Verified: the answer was measured and fits, the next larger one was measured and
// does not, unless tries ran out or the program refused it.
class BatchSearch {
 public:
  // What a batch needs; nothing where the program refuses it.
  using Measure = std::function<std::optional<Bytes>(std::uint64_t batch)>;
  using Known = std::map<std::uint64_t, std::optional<Bytes>>;

  struct Answer {
    std::uint64_t largest = 0;  // that fits; 0: none does
    // The next one that was measured: too large, or refused by the program.
    std::optional<std::uint64_t> smallest_too_large, refused;
    bool exact = false;  // largest + 1 does not fit, or is refused
  };

  static constexpr std::uint64_t kMostBatch = std::uint64_t{1} << 40;
  // How close is close: exactly, or within a hundredth of what fits.
  enum class Until : std::uint8_t { kExact, kHundredth };

  // `known` holds measures already made, and gets those that are made; `tries` is how many more may
  // be made. Starts from `first`, at least 1. O(log of the answer) tries, as a rule 2 to 6.
  static Answer find(std::uint64_t first, Bytes limit, Until until, Known& known, unsigned& tries,
                     const Measure& measure);
};

}  // namespace berth::cli
