#pragma once

#include "csrc/device/forwarding_device.h"

namespace berth {

// A device whose lanes have other names than below it: the base of layers that name lanes by what
// is the same in every run, since plans carry the names and handles of streams differ.
class LaneNamingDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  Status copy(void* to, const void* from, Bytes size, LaneKey lane,
              DeviceEvent* done) noexcept override {
    return device_.copy(to, from, size, below(lane), done);
  }
  Status record(LaneKey lane, DeviceEvent* event) noexcept override {
    return device_.record(below(lane), event);
  }
  Status wait(LaneKey lane, DeviceEvent event) noexcept override {
    return device_.wait(below(lane), event);
  }
  Status capturing(LaneKey lane, bool* capturing) noexcept override {
    return device_.capturing(below(lane), capturing);
  }
  bool may_go(LaneKey lane) const noexcept override { return device_.may_go(below(lane)); }

 protected:
  // The device's own key of a lane.
  [[nodiscard]] virtual LaneKey below(LaneKey lane) const noexcept = 0;
};

}  // namespace berth
