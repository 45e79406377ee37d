#pragma once

#include "csrc/capi/devices.h"

#include <memory>

namespace berth::capi {

// Throws Error(kUsage) where the library was built without CUDA, Error(kSystem) where there is no
// such GPU.
[[nodiscard]] std::unique_ptr<DeviceOfProcess> make_cuda_device_of_process(const Settings& settings,
                                                                           int index);
// The process exits: no driver call from now on.
void end_cuda() noexcept;

}  // namespace berth::capi
