#pragma once

#include "csrc/core/bytes.h"

#include <cstdint>
#include <functional>

namespace berth::replay {

// The least memory with which a run finishes, by bisection: a device's driver gives that much and
// no more.
struct LeastLimit {
  Bytes bytes = 0;           // a run with it finishes
  std::uint64_t trials = 0;  // runs that were made
};

struct LeastLimitOptions {
  Bytes too_little = 0;  // a run cannot finish with it: less than what lives
  Bytes enough = 0;      // a run finishes with it: what it takes without a limit
  // Tried first where it lies between the two, so that the answer agrees with a run on that device.
  Bytes first = 0;
  // The answer is that near to a limit that does not do: a share of itself, and at least a page.
  double precision = 0.001;
};

// `finishes` tells whether a run does with so many bytes. Limits are tried in pages of 2 MiB, for
// whoever takes memory from a driver takes pages.
//
// A little more memory may make a run fail where it had finished, since other blocks are split: the
// answer is one limit that does, beside one that does not, and not the least of all.
[[nodiscard]] LeastLimit least_limit(const LeastLimitOptions& options,
                                     const std::function<bool(Bytes)>& finishes);

}  // namespace berth::replay
