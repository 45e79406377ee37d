#pragma once

#include "csrc/core/bytes.h"
#include "csrc/cuda/cuda_device.h"
#include "csrc/device/address_table.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace berth::torch {

// Blocks of one GPU straight from the driver, as PYTORCH_NO_CUDA_MEMORY_CACHING asks: each free
// goes back at once. In no statistics and no history. Thread-safe; its lock is held during the
// driver's calls.
class UncachedBlocks {
 public:
  // `device` outlives it.
  UncachedBlocks(CudaDevice& device, AddressTable& addresses)
      : device_(device), addresses_(addresses) {}

  // Throws std::bad_alloc.
  Status allocate(Bytes size, void** block);
  // False where no such block starts there.
  bool free(void* block) noexcept;

  // Around fork(): the lock is held over it.
  void before_fork() noexcept { mutex_.lock(); }
  void after_fork() noexcept { mutex_.unlock(); }

 private:
  CudaDevice& device_;
  AddressTable& addresses_;
  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;                         // covers what follows
  std::unordered_map<void*, Bytes> blocks_;  // what each holds
};

}  // namespace berth::torch
