#pragma once

#include <berth/bytes.h>

#include <cstdint>
#include <string>

namespace berth {

// Counters of one allocator since its start. Sizes are bytes. `hits` and all `misses_`, and the
// pool's, say why each request went where it went.
struct Stats {
  // Requests, each counted once under hits, `lent`, a miss or `unplanned`.
  std::uint64_t requests = 0;
  std::uint64_t frees = 0;
  std::uint64_t hits = 0;         // served at the planned offset
  std::uint64_t lent = 0;         // in the arena, at the bytes of a slot that stands empty
  std::uint64_t misses_size = 0;  // another request than the plan expects
  std::uint64_t misses_busy = 0;  // its bytes are still in use
  std::uint64_t misses_lane = 0;  // a stream or thread without a sequence
  std::uint64_t unplanned = 0;    // no plan active, or a slot that the plan leaves to the pool
  std::uint64_t realigned = 0;    // jumps to another position of the plan
  // Where the others went.
  std::uint64_t pool_low = 0, pool_high = 0, pool_resident = 0;
  // Steps and plans.
  std::uint64_t steps = 0;          // marks seen
  std::uint64_t plan_searches = 0;  // looks for a step in what was recorded
  std::uint64_t plans_learned = 0;  // switches to a plan learned in place
  std::uint64_t plan_failures = 0;  // plans dropped (planner or arena failed)
  std::uint64_t late_frees = 0;     // planned blocks freed after their planned lifetime
  std::uint64_t misuses = 0;        // unknown pointers, double frees
  std::uint64_t device_errors = 0;
  std::uint64_t driver_calls = 0;
  std::uint64_t trace_entries_lost = 0;
  // Memory.
  Bytes live = 0, live_peak = 0, requested = 0;  // live: rounded, arena and pool
  Bytes arena = 0, arena_bound = 0;              // of the active plan
  Bytes pool_reserved = 0, pool_reserved_peak = 0, pool_live = 0;
  Bytes reserved = 0, reserved_peak = 0;  // held by arena and pool together

  // One JSON object with these names.
  [[nodiscard]] std::string to_json() const;
  // One line for people: how the requests were served, and what memory that took.
  [[nodiscard]] std::string to_line() const;
};

}  // namespace berth
