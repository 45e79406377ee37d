#pragma once

#include "csrc/device/device.h"
#include "csrc/device/driver_costs.h"

#include <cstdint>
#include <memory>

namespace berth::replay {

// A GPU on paper: what an allocator would ask of one, without memory. Its work is done at once.
// Calls are counted as the CUDA device makes them. Not thread-safe.
class PaperDevice : public Device {
 public:
  [[nodiscard]] virtual const MemoryCallCounts& memory_calls() const noexcept = 0;
};

// kVirtual: pages of 2 MiB that may be behind several addresses. kPlain: cudaMalloc and cudaFree.
enum class PaperMemory : std::uint8_t { kVirtual, kPlain };

// One that has `total` bytes.
[[nodiscard]] std::unique_ptr<PaperDevice> make_paper_device(
    Bytes total, PaperMemory memory = PaperMemory::kVirtual);

}  // namespace berth::replay
