#pragma once

#include "csrc/trace/trace.h"

#include <cstddef>
#include <string>
#include <vector>

namespace berth {

// A whole trace in format 1 (plans/README.md): parse_trace() then reads the same. Texts beyond
// 4096 bytes and shapes of more than 64 dimensions are cut, as by a recorder.
[[nodiscard]] std::vector<std::byte> serialize_trace(const Trace& trace);

// The same as a file, atomically.
void write_trace(const std::string& path, const Trace& trace);

}  // namespace berth
