#include "csrc/cuda/device_memory.h"
#include "csrc/cuda/shared_memory.h"
#include "csrc/facts/rounding.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <new>

namespace berth {
namespace {

constexpr Bytes kPage = facts::kCudaUnit;

class PlainMemory final : public CudaDeviceMemory {
 public:
  PlainMemory(const CudaCalls& calls, CudaPrimary& primary) : calls_(calls), primary_(primary) {}

  ~PlainMemory() override {
    for (const auto& [base, range] : allocations_) (void)calls_.cudaFree(range.allocation);
  }

  Bytes page_bytes() const noexcept override { return kPage; }

  Status reserve(Bytes size, Bytes alignment, void** base) noexcept override {
    *base = nullptr;
    if (size == 0 || size > kMaxBytes || size % kPage != 0 || alignment > kMaxBytes ||
        (alignment != 0 && !is_power_of_two(alignment)))
      return {Status::Code::kFailed, "reserve", cudaErrorInvalidValue};
    // The driver takes no wish. It promises 256 bytes and gives the page that we promise.
    const Bytes spare = alignment > kPage ? alignment : 0;
    void* memory = nullptr;
    if (const Status status = allocate(size + spare, &memory); !status.ok()) return status;
    const Bytes address = align_up(reinterpret_cast<Bytes>(memory), std::max(alignment, kPage));
    if (address - reinterpret_cast<Bytes>(memory) > spare) {
      (void)free(memory);
      return {Status::Code::kFailed, "cudaMalloc", cudaErrorMisalignedAddress};
    }
    const std::lock_guard lock(mutex_);
    try {
      allocations_.emplace(address, Allocation{memory, size});
    } catch (const std::bad_alloc&) {
      (void)free(memory);
      return {Status::Code::kOutOfMemory, "malloc", cudaErrorMemoryAllocation};
    }
    *base = reinterpret_cast<void*>(address);
    return {};
  }

  Status commit(void* base, Bytes size, Bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    if (size == 0 || find(base, size) == allocations_.end())
      return {Status::Code::kFailed, "commit", cudaErrorInvalidValue};
    return {};
  }

  Status decommit(void*, Bytes) noexcept override {
    return {Status::Code::kUnsupported, "decommit", cudaErrorNotSupported};
  }

  Status alias(void*, const void* const*, std::size_t) noexcept override {
    return {Status::Code::kUnsupported, "alias", cudaErrorNotSupported};
  }

  Status release(void* base, Bytes size) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto it = allocations_.find(reinterpret_cast<Bytes>(base));
    if (it == allocations_.end() || it->second.size != size)
      return {Status::Code::kFailed, "release", cudaErrorInvalidValue};
    const Status status = free(it->second.allocation);
    if (status.ok()) allocations_.erase(it);
    return status;
  }

  // Nothing of a reservation comes or goes by itself.
  ByteRange handle_at(const void* address) const noexcept override {
    const std::lock_guard lock(mutex_);
    const auto after = allocations_.upper_bound(reinterpret_cast<Bytes>(address));
    if (after == allocations_.begin()) return {};
    const auto& [first, allocation] = *std::prev(after);
    const ByteRange all{first, first + allocation.size};
    return reinterpret_cast<Bytes>(address) < all.last ? all : ByteRange{};
  }

  // The runtime's own memory is reached by every GPU whose context may reach this one's.
  Status add_peer(int) noexcept override { return {}; }

  Status share(const void* pointer, Bytes size, CudaSharedMemory* shared) override {
    const std::lock_guard lock(mutex_);
    const auto it = find(pointer, size);
    if (it == allocations_.end()) return {Status::Code::kFailed, "share", cudaErrorInvalidValue};
    const CudaMemoryScope scope(calls_, primary_);
    if (!scope.status().ok()) return scope.status();
    cudaIpcMemHandle_t handle;
    const Status status = calls_.cudaIpcGetMemHandle(&handle, it->second.allocation);
    if (!status.ok()) return status;
    shared->handle = shared_plain_handle(handle);
    shared->offset =
        reinterpret_cast<Bytes>(pointer) - reinterpret_cast<Bytes>(it->second.allocation);
    return {};
  }

  Bytes retained_bytes() const noexcept override { return 0; }

 private:
  struct Allocation {
    void* allocation = nullptr;  // what cudaMalloc gave, at most an alignment below
    Bytes size = 0;
  };
  using Allocations = std::map<Bytes, Allocation>;

  Status allocate(Bytes size, void** memory) noexcept {
    const CudaMemoryScope scope(calls_, primary_);
    if (!scope.status().ok()) return scope.status();
    return calls_.cudaMalloc(memory, size);
  }

  Status free(void* memory) noexcept {
    const CudaMemoryScope scope(calls_, primary_);
    if (!scope.status().ok()) return scope.status();
    return calls_.cudaFree(memory);
  }

  // The range that holds all of [pointer, pointer + size).
  Allocations::iterator find(const void* pointer, Bytes size) noexcept {
    const Bytes address = reinterpret_cast<Bytes>(pointer);
    auto it = allocations_.upper_bound(address);
    if (it == allocations_.begin()) return allocations_.end();
    --it;
    const Bytes offset = address - it->first;
    return offset < it->second.size && size <= it->second.size - offset ? it : allocations_.end();
  }

  const CudaCalls& calls_;
  CudaPrimary& primary_;
  mutable std::mutex mutex_;
  Allocations allocations_;  // by base
};

}  // namespace

std::unique_ptr<CudaDeviceMemory> make_plain_memory(const CudaCalls& calls, CudaPrimary& primary) {
  return std::make_unique<PlainMemory>(calls, primary);
}

}  // namespace berth
