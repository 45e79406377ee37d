#include "csrc/cuda/event_pool.h"

#include <new>

namespace berth {

CudaEventPool::~CudaEventPool() {
  for (cudaEvent_t event : free_) (void)calls_.cudaEventDestroy(event);
}

Status CudaEventPool::take(cudaEvent_t* event) noexcept {
  const std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    *event = free_.back();
    free_.pop_back();
    return {};
  }
  try {
    if (free_.capacity() <= made_) free_.reserve(2 * made_ + 16);
  } catch (const std::bad_alloc&) {
    return {Status::Code::kOutOfMemory, "malloc", cudaErrorMemoryAllocation};
  }
  // An event belongs to the device that is current when it is made.
  const CudaCurrentDevice current(calls_, primary_);
  if (!current.status().ok()) return current.status();
  const Status status = calls_.cudaEventCreateWithFlags(event, cudaEventDisableTiming);
  if (status.ok()) ++made_;
  return status;
}

void CudaEventPool::give(cudaEvent_t event) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

}  // namespace berth
