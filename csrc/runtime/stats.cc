#include "csrc/core/bytes.h"
#include "csrc/core/members_json.h"
#include "csrc/runtime/stats_members.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace berth {

std::string Stats::to_json() const {
  std::string text;
  text.reserve(2048);
  append_members(text, *this, "{\n  \"", ",\n  \"");
  text += ",\n  \"misses\": [";
  for (const Miss& miss : misses) {
    append_members(text, miss, &miss == misses.data() ? "\n    {\"" : ",\n    {\"", ", \"");
    text += '}';
  }
  return text + "]\n}";
}

std::string Stats::to_line() const {
  const std::uint64_t missed = misses_size + misses_busy + misses_lane;
  const double share =
      requests == 0 ? 0
                    : 100 * static_cast<double>(hits + hits_bucket) / static_cast<double>(requests);
  const std::string in_arena =
      arena != 0
          ? fmt::format("arena {} / bound {}", format_bytes(arena), format_bytes(arena_bound))
      : plans_set_aside != 0 ? "no plan, since the pool alone made fewer calls of the driver"
      : plans_declined != 0  ? "no plan, since one would hold more than the pool"
                             : "no plan";
  return fmt::format(
      "{} steps, {} requests: {} hits ({:.1f} %{}), {} misses ({} size, {} busy, {} lane), {} "
      "lent, "
      "{} unplanned; {}; reserved {} at the peak",
      steps, requests, hits + hits_bucket, share,
      hits_bucket == 0 ? "" : fmt::format(", {} of them by a bucket", hits_bucket), missed,
      misses_size, misses_busy, misses_lane, lent, unplanned, in_arena,
      format_bytes(reserved_peak));
}

}  // namespace berth
