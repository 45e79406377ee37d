#pragma once

#include "csrc/device/lane_events.h"
#include "csrc/runtime/arena.h"

namespace berth::test {

struct LoneEvents {
  explicit LoneEvents(Device& device) : events(device) {}
  LaneEvents events;
};

// An arena that waits for lanes by itself, without an allocator around it.
struct LoneArena : private LoneEvents, public Arena {
  explicit LoneArena(Device& device, Bytes alignment = 64)
      : LoneEvents(device), Arena(device, events, alignment) {}
};

}  // namespace berth::test
