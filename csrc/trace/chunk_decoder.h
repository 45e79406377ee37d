#pragma once

#include "csrc/trace/trace.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace berth::trace_file {

// Adds the content of one chunk's table to a trace, entries in the order of the file. Returns what
// is wrong with it, empty where nothing is; the trace is then useless. Every count is held against
// the bytes there are, every index against what the file named so far.
struct DecodeResult {
  std::string problem;
  bool start = false;  // it had program and alignment
  bool end = false;    // it says that nothing follows
};
[[nodiscard]] DecodeResult decode_chunk(std::span<const std::byte> table, Trace& trace);

}  // namespace berth::trace_file

namespace berth::trace {

// Sorts the entries by tick and checks what trace.h promises of ticks and ids. Returns what is
// wrong, empty where nothing is. O(n log n), O(n) where they were sorted.
[[nodiscard]] std::string sort_and_check(Trace& trace);

}  // namespace berth::trace
