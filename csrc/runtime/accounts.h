#pragma once

#include "csrc/pool/pool.h"

#include <berth/stats.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace berth {

// Where a request went.
enum class Served : std::uint8_t {
  kHit,        // at its planned offset
  kBucket,     // there, and smaller than the slot
  kLent,       // its own bytes are in use: at others that the plan needs for nobody now
  kMissSize,   // another request than the plan expects here
  kMissBusy,   // its bytes are still in use, or could not be waited for
  kMissLane,   // the lane has no sequence in the plan
  kUnplanned,  // the plan leaves this request to the pool, or rests
};

// The counters of one allocator while it runs, arena and pool together, so that a peak is of both
// at one time. Whoever hands out, takes back or holds memory says so here.
//
// Bytes are rounded but for `requested`. `live` counts `pool_live` too. Not thread-safe: the
// allocator's lock covers it. handed_out() and taken_back() are on the path of a hit.
struct Accounts : Stats {
  Bytes live_peak_before = 0;  // `live_peak` is the one since begin_other_steps()

  // Where a request went, and of those that came to the pool to which end.
  void count(Served served) noexcept {
    std::uint64_t* const outcomes[] = {&hits,        &hits_bucket, &lent,     &misses_size,
                                       &misses_busy, &misses_lane, &unplanned};
    ++*outcomes[static_cast<std::size_t>(served)];
  }
  void count(Mobility kind) noexcept {
    std::uint64_t* const ends[] = {&pool_low, &pool_high, &pool_resident};
    ++*ends[static_cast<std::size_t>(kind)];
  }

  // Of the arena.
  void handed_out(Bytes size, Bytes asked) noexcept {
    requested += asked;
    live += size;
    if (live > live_peak) live_peak = live;
  }
  // Steps come that need less: their peak is one of its own, `live_peak_before` that of the others.
  void begin_other_steps() noexcept {
    live_peak_before = std::max(live_peak_before, std::exchange(live_peak, live));
  }
  void taken_back(Bytes size, Bytes asked) noexcept {
    requested -= asked;
    live -= size;
  }
  [[nodiscard]] Bytes planned_live() const noexcept { return live - pool_live; }

  // Of the pool.
  void handed_out_by_pool(Bytes size, Bytes asked) noexcept {
    pool_live += size;
    handed_out(size, asked);
  }
  void taken_back_by_pool(Bytes size, Bytes asked) noexcept {
    pool_live -= size;
    taken_back(size, asked);
  }

  // Arena and pool hold so much now. To be said at the end of each call that may have changed it.
  void hold(Bytes in_arena, Bytes in_pool) noexcept {
    pool_reserved = in_pool;
    pool_reserved_peak = std::max(pool_reserved_peak, in_pool);
    reserved = in_arena + in_pool;
    reserved_peak = std::max(reserved_peak, reserved);
  }
};

}  // namespace berth
