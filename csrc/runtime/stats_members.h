#pragma once

#include <berth/stats.h>

#include <cstdint>
#include <string>
#include <vector>

// The members of statistics by their names, as JSON and Python name them, in the order of JSON.
namespace berth {

[[nodiscard]] constexpr const char* name_of(Miss::Reason reason) noexcept {
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

// Calls text(name, value) and number(name, value).
template <class Number, class Text>
void for_each_member(const Miss& miss, const Number& number, const Text& text) {
  text("reason", name_of(miss.reason));
  number("lane", miss.lane);
  number("kind", miss.kind);
  number("position", miss.position);
  number("step_requests", miss.requests);
  number("expected_bytes", miss.expected);
  number("came_bytes", miss.came);
  number("tag", miss.tag);
  number("count", miss.count);
}

// The same, without the misses.
template <class Number, class Text>
void for_each_member(const Stats& stats, const Number& number, const Text& text) {
#define BERTH_NUMBER(name) number(#name, stats.name)
  BERTH_NUMBER(requests);
  BERTH_NUMBER(frees);
  BERTH_NUMBER(hits);
  BERTH_NUMBER(hits_bucket);
  BERTH_NUMBER(lent);
  BERTH_NUMBER(misses_size);
  BERTH_NUMBER(misses_busy);
  BERTH_NUMBER(misses_lane);
  BERTH_NUMBER(unplanned);
  BERTH_NUMBER(realigned);
  BERTH_NUMBER(pool_low);
  BERTH_NUMBER(pool_high);
  BERTH_NUMBER(pool_resident);
  BERTH_NUMBER(stitched);
  BERTH_NUMBER(pages_moved);
  BERTH_NUMBER(steps);
  BERTH_NUMBER(plan_searches);
  BERTH_NUMBER(plans_learned);
  BERTH_NUMBER(plans_found);
  BERTH_NUMBER(plan_failures);
  BERTH_NUMBER(plans_declined);
  BERTH_NUMBER(plans_set_aside);
  BERTH_NUMBER(late_frees);
  BERTH_NUMBER(misuses);
  BERTH_NUMBER(device_errors);
  BERTH_NUMBER(driver_calls);
  BERTH_NUMBER(trace_entries_lost);
  BERTH_NUMBER(requested);
  BERTH_NUMBER(live);
  BERTH_NUMBER(live_peak);
  BERTH_NUMBER(arena);
  BERTH_NUMBER(arena_bound);
  BERTH_NUMBER(pool_reserved);
  BERTH_NUMBER(pool_reserved_peak);
  BERTH_NUMBER(pool_live);
  BERTH_NUMBER(reserved);
  BERTH_NUMBER(reserved_peak);
  BERTH_NUMBER(parked);
#undef BERTH_NUMBER
  text("device_memory", stats.device_memory);
}
// A new member belongs into the list.
static_assert(sizeof(Stats) ==
              38 * sizeof(std::uint64_t) + sizeof(std::vector<Miss>) + sizeof(std::string));

}  // namespace berth
