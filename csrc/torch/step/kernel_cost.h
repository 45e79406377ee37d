#pragma once

#include "csrc/core/bytes.h"
#include "csrc/torch/step/elapsed.h"
#include "csrc/torch/step/profilers.h"
#include "csrc/torch/step/record.h"
#include "csrc/torch/step/spills.h"

#include <ATen/core/ivalue.h>
#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace berth::torch::step {

// Waits on the host for a stream of a device; false where that failed.
using StreamWait = bool (*)(const c10::Stream& stream);

// Registers how, in the place of libtorch's way, which torch.cuda.set_sync_debug_mode() may refuse.
// It lives as long as the process. Thread-safe.
void offer_stream_wait(StreamWait wait) noexcept;

// Measures one kernel from here on: its time, and what it takes of memory on its thread, as
// libtorch's allocators report it, whichever they are. Hides the reports from a profiler meanwhile.
// Devices that run behind the host are waited for, before and after: not to be used while a stream
// is captured.
class KernelCost {
 public:
  // Of a kernel that takes these values.
  explicit KernelCost(c10::ArrayRef<c10::IValue> values);
  // Until now, and until the devices of these results have done it, without what spills took.
  [[nodiscard]] std::uint64_t ns(c10::ArrayRef<c10::IValue> results) const;
  // Most bytes that were held at one time.
  [[nodiscard]] Bytes peak() const noexcept;
  // Bytes of what is still held.
  [[nodiscard]] Bytes held() const noexcept;
  // What it asked allocators for, in order, and which of it are the storages of these results; none
  // where that is more than kMostRequests, where one of its own blocks left for the host, or where
  // another thread made room meanwhile.
  [[nodiscard]] std::vector<KernelRequest> requests(c10::ArrayRef<c10::IValue> results) const;
  static constexpr std::size_t kMostRequests = 4096;
  // Which of requests() the memory at this address is; KernelRequest::kNone where none is.
  [[nodiscard]] std::uint32_t request_of(const void* block) const;

 private:
  class Memory;
  std::shared_ptr<Memory> memory_;
  MemoryGuard guard_;
  Spills::Figures before_;
  Elapsed elapsed_;
};

}  // namespace berth::torch::step
