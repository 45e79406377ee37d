#include "csrc/core/bytes.h"

#include <berth/stats.h>

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

namespace berth {

std::string Stats::to_json() const {
  // By hand: where memory runs out, a JSON value that goes asks for some.
  const std::pair<const char*, std::uint64_t> values[] = {
      {"requests", requests},
      {"frees", frees},
      {"hits", hits},
      {"lent", lent},
      {"misses_size", misses_size},
      {"misses_busy", misses_busy},
      {"misses_lane", misses_lane},
      {"unplanned", unplanned},
      {"realigned", realigned},
      {"pool_low", pool_low},
      {"pool_high", pool_high},
      {"pool_resident", pool_resident},
      {"steps", steps},
      {"plan_searches", plan_searches},
      {"plans_learned", plans_learned},
      {"plan_failures", plan_failures},
      {"late_frees", late_frees},
      {"misuses", misuses},
      {"device_errors", device_errors},
      {"driver_calls", driver_calls},
      {"trace_entries_lost", trace_entries_lost},
      {"requested", requested},
      {"live", live},
      {"live_peak", live_peak},
      {"arena", arena},
      {"arena_bound", arena_bound},
      {"pool_reserved", pool_reserved},
      {"pool_reserved_peak", pool_reserved_peak},
      {"pool_live", pool_live},
      {"reserved", reserved},
      {"reserved_peak", reserved_peak},
  };
  std::string text;
  for (const auto& [name, value] : values)
    text += fmt::format("{}\n  \"{}\": {}", text.empty() ? '{' : ',', name, value);
  return text + "\n}";
}

std::string Stats::to_line() const {
  const std::uint64_t misses = misses_size + misses_busy + misses_lane;
  const double share =
      requests == 0 ? 0 : 100 * static_cast<double>(hits) / static_cast<double>(requests);
  const std::string in_arena = arena == 0 ? "no plan"
                                          : fmt::format("arena {} / bound {}", format_bytes(arena),
                                                        format_bytes(arena_bound));
  return fmt::format(
      "{} steps, {} requests: {} hits ({:.1f} %), {} misses ({} size, {} busy, {} lane), {} lent, "
      "{} unplanned; {}; reserved {} at the peak",
      steps, requests, hits, share, misses, misses_size, misses_busy, misses_lane, lent, unplanned,
      in_arena, format_bytes(reserved_peak));
}

}  // namespace berth
