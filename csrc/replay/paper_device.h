#pragma once

#include "csrc/device/device.h"
#include "csrc/device/driver_costs.h"

#include <memory>

namespace berth::replay {

// A GPU on paper: what an allocator would ask of one, without memory. Its pages are of 2 MiB and
// may be behind several addresses; its work is done at once. Calls are counted as the CUDA device
// makes them. Not thread-safe.
class PaperDevice : public Device {
 public:
  [[nodiscard]] virtual const MemoryCallCounts& memory_calls() const noexcept = 0;
};

// One that has `total` bytes.
[[nodiscard]] std::unique_ptr<PaperDevice> make_paper_device(Bytes total);

}  // namespace berth::replay
