#pragma once

#include "csrc/trace/recorder.h"

#include <string_view>

namespace berth::torch {

// Records the beginning of a range under a number of its own, which is never 0, and returns that.
[[nodiscard]] std::uint64_t begin_range(Recorder& recorder, std::string_view name,
                                        trace::RangeKind kind);

}  // namespace berth::torch
