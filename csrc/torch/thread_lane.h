#pragma once

#include "csrc/device/device.h"

namespace berth::torch {

// The lane of the calling thread: 0 for the thread that called claim_first_lane(), 1, 2, ... for
// others in the order of their first request. The number of a thread that ended is given to the
// next new one, so a program that makes a thread for each piece of work keeps to few lanes.
// Lock-free; beyond 65,536 threads at a time numbers are not given again.
[[nodiscard]] LaneKey thread_lane() noexcept;

// Makes the calling thread lane 0.
void claim_first_lane() noexcept;

}  // namespace berth::torch
