#pragma once

#include "csrc/core/bytes.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

namespace berth::trace {

// What is alive just before a request.
struct LiveLoad {
  Bytes bytes = 0;
  std::uint64_t blocks = 0;
};

// A stretch [first, last) of requests in which each equals the one `period` before it, from
// first + period on.
struct PeriodicRun {
  std::uint32_t period = 0;
  std::uint32_t first = 0, last = 0;
};

// Finds the step in a sequence of requests: the smallest period that explains most of it.
//
// The smallest period of all is often an inner loop, as of equal layers. A step differs from one in
// two ways: what is alive at equal phases stays equal but for leaks and late frees (layers forward
// pile up, layers backward take down), and its repeats cover most of the run. A run must hold
// `min_repeats` periods and cover half of the sequence; or half of what follows its first
// appearance, where a program did much else before, if it is an eighth of all and lets the live
// bytes swing by a tenth of their range, which an optimizer's inner loop does not.
//
// `live` has one element more than `sizes`: the last is what was alive in the end.
//
// Candidates are distances to the previous occurrence of the same window of requests, over windows
// of 1, 2, 4, .. requests: one longer than an inner loop only recurs with the step. O(n log n) time
// and O(n) memory. Finds none soon after `cancel` was set.
[[nodiscard]] std::optional<PeriodicRun> find_period(std::span<const Bytes> sizes,
                                                     std::span<const LiveLoad> live,
                                                     std::uint32_t min_repeats,
                                                     const std::atomic<bool>* cancel = nullptr);

}  // namespace berth::trace
