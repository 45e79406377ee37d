#pragma once

#include "csrc/device/device.h"

#include <memory>

namespace berth::replay {

// A GPU on paper: what an allocator would ask of one, without memory. Its pages are of 2 MiB and
// may be behind several addresses; its work is done at once. `total` bytes are to be had. Calls are
// counted as the CUDA device makes them: to make and map a page or to unmap one are two each, to
// give access is one. Not thread-safe.
[[nodiscard]] std::unique_ptr<Device> make_paper_device(Bytes total);

}  // namespace berth::replay
