#pragma once

#include "csrc/runtime/allocator.h"
#include "tests/catch.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace berth::test {

// What must hold of an allocator's counters at any time: the first that does not, in one line;
// empty where all do.
inline std::string inconsistency(const Stats& stats) {
  const std::uint64_t in_arena = stats.hits + stats.hits_bucket + stats.lent;
  const std::uint64_t others =
      stats.misses_size + stats.misses_busy + stats.misses_lane + stats.unplanned;
  const std::uint64_t in_pool = stats.pool_low + stats.pool_high + stats.pool_resident;
  if (in_arena + others != stats.requests)
    return fmt::format("{} requests have {} outcomes", stats.requests, in_arena + others);
  if (in_pool > others)
    return fmt::format("the pool served {} requests of {} that came to it", in_pool, others);
  struct {
    const char* less;
    std::uint64_t value;
    const char* more;
    std::uint64_t limit;
  } const orders[] = {
      {"frees", stats.frees, "requests", stats.requests},
      {"late_frees", stats.late_frees, "frees", stats.frees},
      {"requested", stats.requested, "live", stats.live},
      {"live", stats.live, "live_peak", stats.live_peak},
      {"live", stats.live, "reserved and parked", stats.reserved + stats.parked},
      {"live_peak", stats.live_peak, "reserved_peak", stats.reserved_peak},
      {"pool_live", stats.pool_live, "live", stats.live},
      {"pool_live", stats.pool_live, "pool_reserved and parked",
       stats.pool_reserved + stats.parked},
      {"pool_reserved", stats.pool_reserved, "reserved", stats.reserved},
      {"pool_reserved", stats.pool_reserved, "pool_reserved_peak", stats.pool_reserved_peak},
      {"pool_reserved_peak", stats.pool_reserved_peak, "reserved_peak", stats.reserved_peak},
      {"reserved", stats.reserved, "reserved_peak", stats.reserved_peak},
  };
  for (const auto& order : orders) {
    if (order.value > order.limit)
      return fmt::format("{} is {}, above {} of {}", order.less, order.value, order.more,
                         order.limit);
  }
  return {};
}

// An allocator whose structure and counters are looked at when its test is over. For every test
// that has an allocator.
class CheckedAllocator : public Allocator {
 public:
  using Allocator::Allocator;
  ~CheckedAllocator() {
    CHECK(is_valid() == "");
    CHECK(inconsistency(stats()) == "");
  }
};

}  // namespace berth::test
