#pragma once

#include "csrc/device/lane_events.h"

namespace berth::test {

struct LoneEvents {
  explicit LoneEvents(Device& device) : events(device) {}
  LaneEvents events;
};

}  // namespace berth::test
