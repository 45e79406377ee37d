#pragma once

#include "csrc/core/spin_mutex.h"
#include "csrc/device/lane_naming_device.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace berth {

// Names the lanes of a device by the order in which their streams were first seen, which is the
// same in every run of a program, where the streams' handles are not. Lane 0 is the default stream
// (0).
//
// The number of a forgotten stream is given to a later one once the device is done with all that
// the forgotten one had queued: what is left on the lane (free blocks, waits) then asks nothing of
// the new stream. So there are as many numbers as streams at a time, and those that are not done.
//
// Thread-safe. A known stream costs one look-up in a table.
class StreamNumbers : public LaneNamingDevice {
 public:
  using LaneNamingDevice::LaneNamingDevice;
  ~StreamNumbers() override;

  // Throws std::bad_alloc.
  [[nodiscard]] LaneKey number_of(std::uint64_t stream);
  // Records an event on the stream, which is still there. Where the device gives none, the number
  // is not given again.
  void forget(std::uint64_t stream) noexcept;

 protected:
  // The device's own key of a stream.
  [[nodiscard]] virtual LaneKey key_of(std::uint64_t stream) noexcept { return stream; }
  // What the device is told of it once it was forgotten.
  [[nodiscard]] virtual LaneKey key_when_gone(LaneKey key) const noexcept { return key; }

 private:
  // The number of a forgotten stream, and the end of its work.
  struct Forgotten {
    LaneKey number = 0;
    DeviceEvent done = 0;
  };
  [[nodiscard]] LaneKey below(LaneKey lane) const noexcept override;
  [[nodiscard]] LaneKey take_done_number() noexcept;
  void add_forgotten(Forgotten one) noexcept;

  mutable SpinMutex mutex_;                             // covers all below
  std::unordered_map<std::uint64_t, LaneKey> numbers_;  // by handle
  std::vector<LaneKey> keys_ = {0};                     // the device's, by number
  std::vector<Forgotten> forgotten_;  // a heap, the lowest number first; room for all numbers
};

}  // namespace berth
