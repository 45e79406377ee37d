#pragma once

#include "csrc/core/spin_mutex.h"
#include "csrc/device/forwarding_device.h"

#include <cstdint>
#include <vector>

namespace berth {

// Names the lanes of a device by the order in which their streams were first seen, which is the
// same in every run of a program, where the streams' handles are not. Lane 0 is the default stream
// (0).
//
// Thread-safe. `below` says how the device knows a stream.
class StreamNumbers : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  [[nodiscard]] LaneKey number_of(std::uint64_t stream);
  void forget(std::uint64_t stream) noexcept;

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

 protected:
  // The device's own key of a stream.
  [[nodiscard]] virtual LaneKey key_of(std::uint64_t stream) noexcept { return stream; }

 private:
  struct Stream {
    std::uint64_t handle = 0;
    LaneKey key = 0;
    bool gone = false;
  };
  [[nodiscard]] LaneKey below(LaneKey lane) const noexcept;

  mutable SpinMutex mutex_;
  std::vector<Stream> streams_ = {Stream{}};
};

}  // namespace berth
