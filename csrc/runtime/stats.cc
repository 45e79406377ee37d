#include "csrc/core/bytes.h"

#include <berth/stats.h>

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

namespace berth {

namespace {

const char* name_of(Miss::Reason reason) {
  switch (reason) {
    case Miss::Reason::kSize:
      return "size";
    case Miss::Reason::kBusy:
      return "busy";
    case Miss::Reason::kLane:
      return "lane";
    case Miss::Reason::kLost:
      break;
  }
  return "lost";
}

std::string to_json(const Miss& miss) {
  return fmt::format(
      "{{\"reason\": \"{}\", \"lane\": {}, \"kind\": {}, \"position\": {}, \"step_requests\": {}, "
      "\"expected_bytes\": {}, \"came_bytes\": {}, \"tag\": {}, \"count\": {}}}",
      name_of(miss.reason), miss.lane, miss.kind, miss.position, miss.requests, miss.expected,
      miss.came, miss.tag, miss.count);
}

}  // namespace

std::string Stats::to_json() const {
  // By hand: where memory runs out, a JSON value that goes asks for some.
  const std::pair<const char*, std::uint64_t> values[] = {
      {"requests", requests},
      {"frees", frees},
      {"hits", hits},
      {"hits_bucket", hits_bucket},
      {"lent", lent},
      {"misses_size", misses_size},
      {"misses_busy", misses_busy},
      {"misses_lane", misses_lane},
      {"unplanned", unplanned},
      {"realigned", realigned},
      {"pool_low", pool_low},
      {"pool_high", pool_high},
      {"pool_resident", pool_resident},
      {"stitched", stitched},
      {"pages_moved", pages_moved},
      {"steps", steps},
      {"plan_searches", plan_searches},
      {"plans_learned", plans_learned},
      {"plans_found", plans_found},
      {"plan_failures", plan_failures},
      {"plans_declined", plans_declined},
      {"plans_set_aside", plans_set_aside},
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
      {"parked", parked},
  };
  std::string text;
  text.reserve(2048);
  for (const auto& [name, value] : values) {
    text += text.empty() ? "{\n  \"" : ",\n  \"";
    text += name;
    text += "\": ";
    const fmt::format_int digits(value);
    text.append(digits.data(), digits.size());
  }
  text += ",\n  \"device_memory\": \"";
  for (const char letter : device_memory) {
    if (letter == '"' || letter == '\\') text += '\\';
    if (static_cast<unsigned char>(letter) >= ' ') text += letter;
  }
  text += "\",\n  \"misses\": [";
  for (const Miss& miss : misses)
    text += fmt::format("{}\n    {}", &miss == misses.data() ? "" : ",", berth::to_json(miss));
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
