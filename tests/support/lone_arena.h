#pragma once

#include "csrc/runtime/arena.h"
#include "tests/support/lone_events.h"

namespace berth::test {

// An arena that waits for lanes by itself, without an allocator around it.
struct LoneArena : private LoneEvents, public Arena {
  explicit LoneArena(Device& device, Bytes alignment = 64, PageSource* source = nullptr)
      : LoneEvents(device), Arena(device, events, alignment, source) {}
};

}  // namespace berth::test
