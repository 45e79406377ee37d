#include "csrc/cuda/event_pool.h"

#include <new>
#include <utility>

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
  return make(event);
}

Status CudaEventPool::make(cudaEvent_t* event) noexcept {
  // An event belongs to the device, and to the context, that is current when it is made.
  // mutant: s11-events
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

Status CudaEventPool::replace(cudaEvent_t* event) noexcept {
  (void)calls_.cudaEventDestroy(std::exchange(*event, nullptr));
  const std::lock_guard lock(mutex_);
  --made_;
  return make(event);
}

}  // namespace berth
