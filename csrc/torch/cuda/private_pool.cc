#include "csrc/torch/cuda/private_pool.h"

#include <utility>

namespace berth::torch {
namespace {

// The GPU, with memory from a user's allocator.
class SourceDevice final : public ForwardingDevice {
 public:
  SourceDevice(MeteredDevice& device, PrivatePool::Source source)
      : ForwardingDevice(device),
        gpu_(device),
        source_(std::move(source)),
        properties_(device.properties()) {
    properties_.maps_pages = false;
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
  Status commit(void*, Bytes, Residency) noexcept override { return {}; }
  Status decommit(void*, Bytes) noexcept override {
    return {Status::Code::kUnsupported, "decommit"};
  }

 private:
  MeteredDevice& gpu_;
  const PrivatePool::Source source_;
  DeviceProperties properties_;
};

}  // namespace

PrivatePool::PrivatePool(c10::MempoolId_t pool_id, MeteredDevice& device,
                         Allocator::Options options, PoolEvents& events, Source source)
    : id(pool_id),
      events_(events),
      source_device_(source == nullptr ? nullptr
                                       : std::make_unique<SourceDevice>(device, std::move(source))),
      meter_(source_device_ == nullptr ? device : *source_device_, this),
      allocator_(meter_, with_listener(std::move(options))) {}

}  // namespace berth::torch
