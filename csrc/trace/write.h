#pragma once

#include "csrc/trace/trace.h"

#include <string>

namespace berth {

// Writes a whole trace in format 1 (plans/README.md), atomically: read_trace() then reads the same.
// Texts beyond 4096 bytes and shapes of more than 64 dimensions are cut, as by a recorder.
void write_trace(const std::string& path, const Trace& trace);

}  // namespace berth
