#pragma once

#include "csrc/cuda/cuda_device.h"
#include "csrc/cuda/current_device.h"

#include <cstddef>
#include <memory>
#include <string>

namespace berth {

// How a CUDA device comes by memory: the calls of Device about address ranges, for one of the two
// kinds. Thread-safe.
class CudaDeviceMemory {
 public:
  virtual ~CudaDeviceMemory() = default;

  [[nodiscard]] virtual Bytes page_bytes() const noexcept = 0;
  virtual Status reserve(Bytes size, Bytes alignment, void** base) noexcept = 0;
  virtual Status commit(void* base, Bytes size, Bytes most) noexcept = 0;
  virtual Status decommit(void* base, Bytes size) noexcept = 0;
  virtual Status release(void* base, Bytes size) noexcept = 0;
  // Of plain memory empty where it has no such address.
  [[nodiscard]] virtual ByteRange handle_at(const void* address) const noexcept = 0;
  virtual Status alias(void* to, const void* const* from, std::size_t pages) noexcept = 0;

  // GPU `other`, which may reach this one's context already, gets access to ranges, those to come
  // included. After a failure some of them may have it already.
  virtual Status add_peer(int other) noexcept = 0;
  // May throw std::bad_alloc.
  virtual Status share(const void* pointer, Bytes size, CudaSharedMemory* shared) = 0;

  [[nodiscard]] virtual Bytes retained_bytes() const noexcept = 0;
};

// One cudaMalloc a reservation.
[[nodiscard]] std::unique_ptr<CudaDeviceMemory> make_plain_memory(const CudaCalls& calls,
                                                                  CudaPrimary& primary);
// The driver's virtual memory, as it works: what its attributes promise is tried with one page,
// with file descriptors and RDMA, without RDMA, without both. Null where it has none or every try
// fails; `how` says what was taken, or why nothing was, for people. Throws Error(kSystem) where it
// cannot be asked.
[[nodiscard]] std::unique_ptr<CudaDeviceMemory> make_virtual_memory(const CudaCalls& calls,
                                                                    CudaPrimary& primary,
                                                                    Bytes page_bytes,
                                                                    std::string* how);

}  // namespace berth
