#pragma once

#include "csrc/core/spin_mutex.h"
#include "csrc/device/lane_naming_device.h"

#include <cstdint>
#include <vector>

namespace berth {

// Names the lanes of a device by the order in which their streams were first seen, which is the
// same in every run of a program, where the streams' handles are not. Lane 0 is the default stream
// (0).
//
// Thread-safe.
class StreamNumbers : public LaneNamingDevice {
 public:
  using LaneNamingDevice::LaneNamingDevice;

  [[nodiscard]] LaneKey number_of(std::uint64_t stream);
  void forget(std::uint64_t stream) noexcept;

 protected:
  // The device's own key of a stream.
  [[nodiscard]] virtual LaneKey key_of(std::uint64_t stream) noexcept { return stream; }
  // What the device is told of it once it was forgotten.
  [[nodiscard]] virtual LaneKey key_when_gone(LaneKey key) const noexcept { return key; }

 private:
  struct Stream {
    std::uint64_t handle = 0;
    LaneKey key = 0;
    bool gone = false;
  };
  [[nodiscard]] LaneKey below(LaneKey lane) const noexcept override;

  mutable SpinMutex mutex_;
  std::vector<Stream> streams_ = {Stream{}};
};

}  // namespace berth
