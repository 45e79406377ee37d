#pragma once

#include <string>

namespace berth::cli {

// `berth doctor --device [N]`: what the driver of CUDA can do with each GPU, or with GPU `device`
// where that is a number, what berth uses of it and why. A child process asks, so that nothing of
// CUDA's comes into this one. Prints a text or JSON. kNo where berth's settings ask for memory that
// a GPU does not have. Throws Error(kSystem) where there is no runtime, no driver or no GPU.
[[nodiscard]] int report_devices(const std::string& device, bool json);

}  // namespace berth::cli
