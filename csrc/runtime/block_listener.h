#pragma once

#include "csrc/device/device.h"

namespace berth {

// Hears of every block of an allocator, in order, under its lock: for counters and histories that
// must be exact. It must neither throw nor call an allocator that has the same lock.
class BlockListener {
 public:
  struct Block {
    void* pointer = nullptr;
    Bytes requested = 0;
    Bytes size = 0;    // rounded
    LaneKey lane = 0;  // that it was asked for on
  };
  virtual ~BlockListener() = default;
  virtual void served(const Block& block) noexcept = 0;
  // `waiting`: its bytes come free only when other lanes are done with them; completed() follows.
  virtual void freed(const Block& block, bool waiting) noexcept = 0;
  virtual void completed(const Block& block) noexcept = 0;
};

}  // namespace berth
