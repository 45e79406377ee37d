#pragma once

#include "csrc/core/bytes.h"

#include <c10/core/Event.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <memory>

namespace berth::torch::step {

// Memory of a device that is being copied to the host by another stream than the one that it is of.
// It is free once its own stream has waited for the copy.
struct LeavingBlock {
  c10::Storage storage;
  std::shared_ptr<c10::Event> copied;
  c10::Stream stream;  // its own
};

// Keeps the block in mind until end() or end_all(). Thread-safe, as the others. O(1), amortized.
[[nodiscard]] std::shared_ptr<LeavingBlock> note_leaving(LeavingBlock block);
// Its stream waits, and it is free. Nothing where it has ended before.
void end(LeavingBlock& block);
// Ends all of a device, since memory is out there. Returns their bytes. O(blocks that leave).
Bytes end_all_leaving(c10::Device device);

}  // namespace berth::torch::step
