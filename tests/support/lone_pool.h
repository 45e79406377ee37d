#pragma once

#include "csrc/pool/pool.h"
#include "tests/support/lone_events.h"

namespace berth::test {

// A pool that waits for lanes by itself, without an allocator around it.
struct LonePool : private LoneEvents, public Pool {
  explicit LonePool(Device& device, const PoolOptions& options = {})
      : LoneEvents(device), Pool(device, events, options) {}
};

}  // namespace berth::test
