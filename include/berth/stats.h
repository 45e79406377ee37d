#pragma once

#include <berth/bytes.h>

#include <cstdint>
#include <string>
#include <vector>

namespace berth {

// One group of missed requests with the same reason, lane, place in the step and sizes; `count` is
// how many.
struct Miss {
  enum class Reason : std::uint8_t {
    kSize,  // another request than the plan expects there
    kBusy,  // its bytes are still in use
    kLane,  // a stream or thread without a sequence
    kLost,  // after too many others in a row: the plan knows no such step, or not from here on
  };
  Reason reason = Reason::kSize;
  std::uint64_t lane = 0;      // key of the stream or thread
  std::uint32_t kind = 0;      // which of the plan's kinds of steps the lane followed
  std::uint32_t position = 0;  // requests of the step before it
  std::uint32_t requests = 0;  // of a step of that kind
  Bytes expected = 0;          // 0: nothing
  Bytes came = 0;
  std::uint32_t tag = 0;
  std::uint64_t count = 0;  // at least
};

// Counters of one allocator since its start. Sizes are bytes. `hits` and all `misses_`, and the
// pool's, say why each request went where it went.
struct Stats {
  // Requests, each counted once under hits, `hits_bucket`, `lent`, a miss or `unplanned`.
  std::uint64_t requests = 0;
  std::uint64_t frees = 0;
  std::uint64_t hits = 0;         // served at the planned offset
  std::uint64_t hits_bucket = 0;  // at the offset that was planned for larger ones
  std::uint64_t lent = 0;         // in the arena, at the bytes of a slot that stands empty
  std::uint64_t misses_size = 0;  // another request than the plan expects
  std::uint64_t misses_busy = 0;  // its bytes are still in use
  std::uint64_t misses_lane = 0;  // a stream or thread without a sequence
  std::vector<Miss> misses;       // the most frequent of the active plan, 16 at most
  std::uint64_t unplanned = 0;    // no plan active, or a slot that the plan leaves to the pool
  std::uint64_t realigned = 0;    // jumps to another position of the plan
  // Where the others went.
  std::uint64_t pool_low = 0, pool_high = 0, pool_resident = 0;
  std::uint64_t stitched = 0;     // blocks of the pool made of pieces of several holes
  std::uint64_t pages_moved = 0;  // from the pool to the arena
  // Steps and plans.
  std::uint64_t steps = 0;          // marks seen
  std::uint64_t plan_searches = 0;  // looks for a step in what was recorded
  std::uint64_t plans_learned = 0;  // switches to a plan learned in place
  std::uint64_t plans_found = 0;    // switches to a plan found in a folder
  std::uint64_t plan_failures = 0;  // plans dropped (planner or arena failed)
  std::uint64_t late_frees = 0;     // planned blocks freed after their planned lifetime
  std::uint64_t misuses = 0;        // unknown pointers, double frees
  std::uint64_t device_errors = 0;
  std::uint64_t driver_calls = 0;
  // How a GPU's memory is had, and what of the driver's virtual memory was tried in vain; empty on
  // the host.
  std::string device_memory;
  std::uint64_t trace_entries_lost = 0;
  // Memory.
  Bytes live = 0, live_peak = 0, requested = 0;  // live: rounded, arena and pool
  Bytes arena = 0, arena_bound = 0;              // of the active plan
  Bytes pool_reserved = 0, pool_reserved_peak = 0, pool_live = 0;
  Bytes reserved = 0, reserved_peak = 0;  // held by arena and pool together
  Bytes parked = 0;  // in host memory, released with their contents; then nothing is reserved

  // One JSON object with these names. `misses` is a list of objects of `reason` (size, busy, lane,
  // lost), `lane`, `kind`, `position`, `step_requests`, `expected_bytes`, `came_bytes`, `tag` and
  // `count`.
  [[nodiscard]] std::string to_json() const;
  // One line for people: how the requests were served, and what memory that took.
  [[nodiscard]] std::string to_line() const;
};

}  // namespace berth
