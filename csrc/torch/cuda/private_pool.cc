#include "csrc/torch/cuda/private_pool.h"

#include "csrc/device/forwarding_device.h"

#include <algorithm>
#include <utility>

namespace berth::torch {
namespace {

// The GPU, with memory from a user's allocator.
class SourceDevice final : public ForwardingDevice {
 public:
  SourceDevice(PageStore& device, PrivatePool::Source source)
      : ForwardingDevice(device),
        gpu_(device),
        source_(std::move(source)),
        properties_(device.properties()) {
    properties_.maps_pages = properties_.aliases = false;
  }

  [[nodiscard]] const DeviceProperties& properties() const noexcept override { return properties_; }
  Status reserve(Bytes size, Bytes, void** base) noexcept override {
    if (const Status status = gpu_.take(size); !status.ok()) return status;
    try {
      *base = source_->raw_alloc(size);
    } catch (const std::exception&) {
      *base = nullptr;
    }
    if (*base != nullptr) return {};
    gpu_.give(size);
    return {Status::Code::kOutOfMemory, "raw_alloc of the pool's allocator"};
  }
  Status release(void* base, Bytes size) noexcept override {
    try {
      source_->raw_delete(base);
      gpu_.give(size);
      return {};
    } catch (const std::exception&) {
      return {Status::Code::kFailed, "raw_delete of the pool's allocator"};
    }
  }
  Status commit(void*, Bytes, Residency, Bytes) noexcept override { return {}; }
  Status decommit(void*, Bytes) noexcept override {
    return {Status::Code::kUnsupported, "decommit"};
  }
  Status alias(void*, const void* const*, std::size_t) noexcept override {
    return {Status::Code::kUnsupported, "alias"};
  }

 private:
  PageStore& gpu_;
  const PrivatePool::Source source_;
  DeviceProperties properties_;
};

// The GPU, a mapping a segment.
class SegmentDevice final : public ForwardingDevice {
 public:
  explicit SegmentDevice(Device& device)
      : ForwardingDevice(device), properties_(device.properties()) {
    properties_.maps_pages = properties_.aliases = false;
  }

  [[nodiscard]] const DeviceProperties& properties() const noexcept override { return properties_; }
  Status reserve(Bytes size, Bytes alignment, void** base) noexcept override {
    Status status = device_.reserve(size, std::max(alignment, properties_.page_bytes), base);
    if (!status.ok() || !device_.properties().maps_pages) return status;
    // In one handle: who registers memory does so by what the driver gave.
    status = device_.commit(*base, size, Residency::kResident, kMaxBytes);
    if (!status.ok()) (void)device_.release(std::exchange(*base, nullptr), size);
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
  DeviceProperties properties_;
};

std::unique_ptr<Device> segments_of(PageStore& device, const PrivatePool::Source& source,
                                    bool whole) {
  if (source != nullptr) return std::make_unique<SourceDevice>(device, source);
  return whole ? std::make_unique<SegmentDevice>(device) : nullptr;
}

Allocator::Options with_listener(Allocator::Options options, PoolListener& listener, bool whole) {
  options.listener = &listener;
  options.memory_listener = &listener;
  options.pool.splits = !whole;
  return options;
}

}  // namespace

PrivatePool::PrivatePool(c10::MempoolId_t pool_id, PageStore& device, Allocator::Options options,
                         Reports& reports, Source the_source, bool whole)
    : id(pool_id),
      source(std::move(the_source)),
      whole_segments(whole),
      listener_(reports, pool_id),
      device_(device),
      segments_(segments_of(device, source, whole)),
      allocator_(segments_ == nullptr ? device : *segments_,
                 with_listener(std::move(options), listener_, whole)) {}

}  // namespace berth::torch
