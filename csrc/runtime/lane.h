#pragma once

#include "csrc/device/device.h"
#include "csrc/plan/lookup.h"
#include "csrc/runtime/aligner.h"
#include "csrc/runtime/path.h"

#include <array>
#include <cstdint>
#include <optional>

namespace berth {

// How one lane stands to the plan that is served.
struct Lane {
  enum class Mode : std::uint8_t {
    kAligned,    // the next request is expected at `next`
    kSearching,  // a request was not as expected: the aligner looks around
    kResting,    // far off: waits for a mark, or for a run of requests that it knows
  };

  LaneKey key = 0;
  Mode mode = Mode::kResting;
  std::uint32_t plan_lane = 0;
  std::uint32_t sequence = 0;               // whose path it follows
  std::uint32_t position = 0;               // tick of that path: all ends up to it were looked at
  PlanLookup::SlotIndex next = 0, end = 0;  // slots expected, up to where their numbers have a gap
  PlanLookup::SlotIndex counted = 0;        // requests up to it are counted in requests_since_mark
  bool parent_ends = false;                 // the path has ancestors, whose slots end on it too

  Aligner aligner;
  std::uint32_t aligned_path = 0;  // the sequence whose path the aligner looks at

  // While resting: the slot that would be next if the last `run` requests were what they look like,
  // and how long a run it takes to believe it.
  std::array<Bytes, PlanLookup::kWindow> window{};
  std::uint32_t seen = 0;  // requests in `window`
  PathPlace guess;
  std::uint32_t run = 0, run_needed = 0;
  bool used = false;        // asked for something, or ended a step
  bool outgrown = false;    // its step is larger than the bucket that it follows
  bool entered = false;     // was aligned since the plan was loaded
  bool all_astray = false;  // all it has live is off schedule: it rests, and was lent bytes
  std::uint64_t requests_since_mark = 0;
  std::uint32_t misses = 0;  // of this step
  // Requests of this step whose size the plan has not there, and jumps.
  std::uint32_t surprises = 0;
  std::uint32_t homeless = 0;  // ticks that the last request lives whose bytes were in use; or 0
};

}  // namespace berth
