#include "csrc/torch/cuda/private_pool.h"

#include "csrc/device/forwarding_device.h"

#include <utility>

namespace berth::torch {
namespace {

// The GPU, whose memory comes in segments that count against what the process may hold.
class SegmentDevice : public ForwardingDevice {
 public:
  explicit SegmentDevice(PageStore& device)
      : ForwardingDevice(device), account_(device), properties_(device.properties()) {
    properties_.maps_pages = properties_.aliases = false;
  }

  [[nodiscard]] const DeviceProperties& properties() const noexcept override { return properties_; }
  Status reserve(Bytes size, Bytes, void** base) noexcept override {
    *base = nullptr;
    if (const Status status = account_.take(size); !status.ok()) return status;
    const Status status = bring(size, base);
    if (!status.ok()) account_.give(size);
    return status;
  }
  Status release(void* base, Bytes size) noexcept override {
    const Status status = give_back(base, size);
    if (status.ok()) account_.give(size);
    return status;
  }
  Status commit(void*, Bytes, Residency, Bytes) noexcept override { return {}; }
  Status decommit(void*, Bytes) noexcept override {
    return {Status::Code::kUnsupported, "decommit"};
  }
  Status alias(void*, const void* const*, std::size_t) noexcept override {
    return {Status::Code::kUnsupported, "alias"};
  }

 private:
  virtual Status bring(Bytes size, void** base) noexcept = 0;
  virtual Status give_back(void* base, Bytes size) noexcept = 0;

  PageStore& account_;
  DeviceProperties properties_;
};

// Segments of cudaMalloc.
class CudaSegments final : public SegmentDevice {
 public:
  CudaSegments(PageStore& device, CudaDevice& gpu) : SegmentDevice(device), gpu_(gpu) {}

 private:
  Status bring(Bytes size, void** base) noexcept override {
    return gpu_.allocate_segment(size, base);
  }
  Status give_back(void* base, Bytes size) noexcept override {
    return gpu_.free_segment(base, size);
  }

  CudaDevice& gpu_;
};

thread_local bool inside_source = false;

// Segments of a user's allocator. It is called without the GPU's lock, since it may ask for memory
// here, or for statistics (pytorch#187465).
class SourceSegments final : public SegmentDevice {
 public:
  SourceSegments(PageStore& device, PrivatePool::Source source, SpinMutex& lock)
      : SegmentDevice(device), source_(std::move(source)), lock_(lock) {}

 private:
  class Outside {
   public:
    explicit Outside(SpinMutex& lock) noexcept
        : lock_(lock), before_(std::exchange(inside_source, true)) {
      lock_.unlock();
    }
    ~Outside() {
      lock_.lock();
      inside_source = before_;
    }
    Outside(const Outside&) = delete;
    Outside& operator=(const Outside&) = delete;

   private:
    SpinMutex& lock_;
    const bool before_;
  };

  Status bring(Bytes size, void** base) noexcept override {
    const Outside outside(lock_);
    try {
      *base = source_->raw_alloc(size);
    } catch (const std::exception&) {
      *base = nullptr;
    }
    if (*base != nullptr) return {};
    return {Status::Code::kOutOfMemory, "raw_alloc of the pool's allocator"};
  }
  Status give_back(void* base, Bytes) noexcept override {
    const Outside outside(lock_);
    try {
      source_->raw_delete(base);
      return {};
    } catch (const std::exception&) {
      return {Status::Code::kFailed, "raw_delete of the pool's allocator"};
    }
  }

  const PrivatePool::Source source_;
  SpinMutex& lock_;
};

std::unique_ptr<Device> segments_of(PageStore& device, CudaDevice& gpu,
                                    const PrivatePool::Source& source, SpinMutex* lock) {
  if (source != nullptr) return std::make_unique<SourceSegments>(device, source, *lock);
  return std::make_unique<CudaSegments>(device, gpu);
}

Allocator::Options with_listener(Allocator::Options options, PoolListener& listener, bool whole) {
  options.listener = &listener;
  options.memory_listener = &listener;
  options.pool.splits = !whole;
  if (whole) options.pool.segment_bytes = 0;
  return options;
}

}  // namespace

bool PrivatePool::inside_source_of_any() noexcept { return inside_source; }

PrivatePool::PrivatePool(PageStore& device, Allocator::Options options, Reports& reports)
    : PrivatePool({0, 0}, device, nullptr, std::move(options), reports, nullptr, false) {}

PrivatePool::PrivatePool(c10::MempoolId_t pool_id, PageStore& device, CudaDevice& gpu,
                         Allocator::Options options, Reports& reports, Source the_source,
                         bool whole)
    : PrivatePool(pool_id, device, segments_of(device, gpu, the_source, options.lock),
                  std::move(options), reports, the_source, whole) {}

PrivatePool::PrivatePool(c10::MempoolId_t pool_id, PageStore& device,
                         std::unique_ptr<Device> segments, Allocator::Options options,
                         Reports& reports, Source the_source, bool whole)
    : id(pool_id),
      source(std::move(the_source)),
      whole_segments(whole),
      listener_(reports, pool_id),
      device_(device),
      segments_(std::move(segments)),
      allocator_(segments_ == nullptr ? device : *segments_,
                 with_listener(std::move(options), listener_, whole)) {}

}  // namespace berth::torch
