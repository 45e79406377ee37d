#pragma once

#include "csrc/core/bytes.h"
#include "csrc/device/device.h"

#include <cstdint>
#include <vector>

namespace berth {

// A stretch of memory that an allocator has: what lies in it, in address order and without a gap.
struct Stretch {
  struct Piece {
    enum class Kind : std::uint8_t { kLive, kWaiting, kHole };
    const void* pointer = nullptr;
    Bytes size = 0;
    Bytes requested = 0;  // of a block; of a hole, that of the block freed there last, or 0
    LaneKey lane = 0;     // of a block
    Kind kind = Kind::kHole;
  };
  const void* base = nullptr;
  Bytes size = 0;
  std::vector<Piece> pieces;
};

}  // namespace berth
