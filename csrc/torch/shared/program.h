#pragma once

#include "csrc/device/device.h"
#include "csrc/trace/trace.h"

#include <berth/config.h>

namespace berth::torch {

// This process on a device, as traces and plans name it: libtorch's version, the device, world size
// and rank as a launcher (torchrun) put them into the environment, the user's tag.
[[nodiscard]] trace::Program this_program(const Config& config, const DeviceProperties& device);

// Throws Error(kUsage) where the libtorch of this process is not of the version that berth was
// built for: its classes may be laid out otherwise.
void check_libtorch();

}  // namespace berth::torch
