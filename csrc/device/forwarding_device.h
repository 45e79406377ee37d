#pragma once

#include "csrc/device/device.h"

#include <cstddef>
#include <string>

namespace berth {

// A device whose calls all go to another one, which outlives it: the base of layers that change
// some.
class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(Device& device) : device_(device) {}

  [[nodiscard]] const DeviceProperties& properties() const noexcept override {
    return device_.properties();
  }
  Status free_bytes(Bytes* free) noexcept override { return device_.free_bytes(free); }
  [[nodiscard]] Bytes limit() const noexcept override { return device_.limit(); }
  [[nodiscard]] Bytes room() const noexcept override { return device_.room(); }
  [[nodiscard]] std::string describe(const Status& status) const override {
    return device_.describe(status);
  }
  Status reserve(Bytes size, Bytes alignment, void** base) noexcept override {
    return device_.reserve(size, alignment, base);
  }
  using Device::commit;
  Status commit(void* base, Bytes size, Residency residency, Bytes most) noexcept override {
    return device_.commit(base, size, residency, most);
  }
  Status decommit(void* base, Bytes size) noexcept override { return device_.decommit(base, size); }
  Status release(void* base, Bytes size) noexcept override { return device_.release(base, size); }
  [[nodiscard]] Bytes handle_bytes() const noexcept override { return device_.handle_bytes(); }
  [[nodiscard]] ByteRange handle_at(const void* address) const noexcept override {
    return device_.handle_at(address);
  }
  Status alias(void* to, const void* const* from, std::size_t pages) noexcept override {
    return device_.alias(to, from, pages);
  }
  Status move(void* to, void* from, Bytes size) noexcept override {
    return device_.move(to, from, size);
  }
  Status reserve_pinned(Bytes size, void** base) noexcept override {
    return device_.reserve_pinned(size, base);
  }
  Status release_pinned(void* base, Bytes size) noexcept override {
    return device_.release_pinned(base, size);
  }
  Status copy(void* to, const void* from, Bytes size, LaneKey lane,
              DeviceEvent* done) noexcept override {
    return device_.copy(to, from, size, lane, done);
  }
  Status record(LaneKey lane, DeviceEvent* event) noexcept override {
    return device_.record(lane, event);
  }
  Status query(DeviceEvent event, bool* complete) noexcept override {
    return device_.query(event, complete);
  }
  Status wait(LaneKey lane, DeviceEvent event) noexcept override {
    return device_.wait(lane, event);
  }
  Status synchronize(DeviceEvent event) noexcept override { return device_.synchronize(event); }
  Status synchronize_all() noexcept override { return device_.synchronize_all(); }
  void destroy(DeviceEvent event) noexcept override { device_.destroy(event); }
  Status capturing(LaneKey lane, bool* capturing) noexcept override {
    return device_.capturing(lane, capturing);
  }
  bool may_go(LaneKey lane) const noexcept override { return device_.may_go(lane); }
  [[nodiscard]] std::uint64_t driver_calls() const noexcept override {
    return device_.driver_calls();
  }

 protected:
  Device& device_;
};

}  // namespace berth
