#include "csrc/capi/cuda_device_of_process.h"

#include <berth/error.h>

#include <fmt/format.h>

namespace berth::capi {

std::unique_ptr<DeviceOfProcess> make_cuda_device_of_process(const Settings&, int index) {
  throw Error(
      ErrorKind::kUsage,
      fmt::format("device {} was requested, and this berth was built without CUDA: there is "
                  "the host, -1",
                  index));
}

void end_cuda() noexcept {}

}  // namespace berth::capi
