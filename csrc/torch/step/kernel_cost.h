#pragma once

#include "csrc/core/bytes.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace berth::torch::step {

// Measures one kernel from here on: its time, and what it takes of memory on its thread, as
// libtorch's allocators report it, whichever they are. Hides the reports from a profiler meanwhile.
class KernelCost {
 public:
  KernelCost();
  [[nodiscard]] std::uint64_t ns() const;
  // Most bytes that were held at one time.
  [[nodiscard]] Bytes peak() const noexcept;
  // Bytes of what is still held.
  [[nodiscard]] Bytes held() const noexcept;

 private:
  class Memory;
  std::shared_ptr<Memory> memory_;
  c10::DebugInfoGuard guard_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace berth::torch::step
