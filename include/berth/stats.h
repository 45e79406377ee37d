#pragma once

#include <berth/bytes.h>

#include <cstdint>
#include <string>
#include <vector>

namespace berth {

// One group of missed requests with the same reason, lane, kind, position, sizes and tag. `count`
// is their number.
struct Miss {
  enum class Reason : std::uint8_t {
    kSize,  // the plan expects another request there
    kBusy,  // the slot's bytes are still in use
    kLane,  // the plan does not know the stream or thread
    kLost,  // the lane missed too many requests in a row
  };
  Reason reason = Reason::kSize;
  std::uint64_t lane = 0;      // the key of the stream or thread
  std::uint32_t kind = 0;      // the kind of step that the lane followed
  std::uint32_t position = 0;  // the number of requests before it in its step
  std::uint32_t requests = 0;  // the number of requests in a step of that kind
  Bytes expected = 0;          // the size that the plan expects; 0: no request
  Bytes came = 0;              // the size of the request
  std::uint32_t tag = 0;       // of the scope; 0: none
  std::uint64_t count = 0;     // how many requests missed so; possibly more
};

// Counters of one allocator since its start. Sizes are bytes.
struct Stats {
  // All requests. Each is also counted once under hits, hits_bucket, lent, a miss or unplanned.
  std::uint64_t requests = 0;
  std::uint64_t frees = 0;
  std::uint64_t hits = 0;         // requests served at their planned offset
  std::uint64_t hits_bucket = 0;  // requests served at the offset of a larger slot
  std::uint64_t lent = 0;         // requests served at other bytes of the arena that are free
  std::uint64_t misses_size = 0;  // misses: the plan expects another request there
  std::uint64_t misses_busy = 0;  // misses: the slot's bytes are still in use
  std::uint64_t misses_lane = 0;  // misses: the plan does not know the lane, or lost its position
  std::vector<Miss> misses;       // the most frequent of the active plan, 16 at most
  std::uint64_t unplanned = 0;    // no plan active, or a slot that the plan leaves to the pool
  std::uint64_t realigned = 0;    // jumps to another position of the plan
  // Requests that the pool served: at its low end, at its high end, in its area for residents.
  std::uint64_t pool_low = 0, pool_high = 0, pool_resident = 0;
  std::uint64_t stitched = 0;     // blocks that the pool made of several holes
  std::uint64_t pages_moved = 0;  // pages that moved from the pool to the arena
  // Steps and plans.
  std::uint64_t steps = 0;          // marks seen
  std::uint64_t plan_searches = 0;  // searches for a step in the record
  std::uint64_t plans_learned = 0;  // switches to a plan learned in place
  std::uint64_t plans_found = 0;    // switches to a plan found in a folder
  std::uint64_t plan_failures = 0;  // plans dropped (planner or arena failed)
  // Times that a plan would have held more than the pool does.
  std::uint64_t plans_declined = 0;
  // Times that a plan made more calls of the driver than the pool alone, which served on.
  std::uint64_t plans_set_aside = 0;
  std::uint64_t late_frees = 0;  // planned blocks freed after their planned lifetime
  std::uint64_t misuses = 0;     // unknown pointers, double frees
  std::uint64_t device_errors = 0;
  std::uint64_t driver_calls = 0;
  // How berth allocates a GPU's memory, and which parts of the driver's virtual memory failed;
  // empty on the host.
  std::string device_memory;
  std::uint64_t trace_entries_lost = 0;
  // Memory.
  Bytes live = 0, live_peak = 0, requested = 0;  // live: rounded, arena and pool
  Bytes arena = 0, arena_bound = 0;              // of the active plan
  Bytes pool_reserved = 0, pool_reserved_peak = 0, pool_live = 0;
  Bytes reserved = 0, reserved_peak = 0;  // held by arena and pool together
  Bytes parked = 0;  // released with their contents, which host memory keeps meanwhile

  // One JSON object with these names. `misses` is a list of objects of `reason` (size, busy, lane,
  // lost), `lane`, `kind`, `position`, `step_requests`, `expected_bytes`, `came_bytes`, `tag` and
  // `count`.
  [[nodiscard]] std::string to_json() const;
  // One line for people: requests by how they were served, and memory.
  [[nodiscard]] std::string to_line() const;
};

}  // namespace berth
