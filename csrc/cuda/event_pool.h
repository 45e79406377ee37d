#pragma once

#include "csrc/cuda/current_device.h"

#include <cuda_runtime_api.h>

#include <mutex>
#include <vector>

namespace berth {

// Events of one GPU that wait to be used again: making one is dear, and slower still from several
// threads. Thread-safe. Giving one back needs no memory.
class CudaEventPool {
 public:
  CudaEventPool(const CudaCalls& calls, CudaPrimary& primary) : calls_(calls), primary_(primary) {}
  // Destroys those that came back.
  ~CudaEventPool();
  CudaEventPool(const CudaEventPool&) = delete;
  CudaEventPool& operator=(const CudaEventPool&) = delete;

  Status take(cudaEvent_t* event) noexcept;
  void give(cudaEvent_t event) noexcept;
  // In place of one that cannot be used, which is destroyed: made now. After a failure there is
  // none.
  Status replace(cudaEvent_t* event) noexcept;

 private:
  Status make(cudaEvent_t* event) noexcept;

  const CudaCalls& calls_;
  CudaPrimary& primary_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;  // has room for all that were made
  std::size_t made_ = 0;
};

}  // namespace berth
