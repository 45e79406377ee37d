#pragma once

#include "csrc/standin/abi.h"

namespace berth::standin {

// What the stand-ins of NVIDIA's libraries hand out as their handle: the stream that work goes to.
// Generated functions take theirs as the first argument, too (berth_standin_handle_work).
struct LibraryHandle {
  StreamHandle stream = nullptr;
};

}  // namespace berth::standin
