#pragma once

#include "csrc/trace/trace.h"

#include <string>

namespace berth {

// Reads a trace: format 1 (`plans/README.md`), events CSV (`action,id,bytes,stream`) or lifetimes
// CSV
// (`id,lower,upper,size`), plain or gzip, told apart by their content. Trusts nothing: throws
// Error(kInput) that names path, line or chunk, and the reason. A torn tail is cut and counted in
// Trace::cut_bytes.
[[nodiscard]] Trace read_trace(const std::string& path);

// Writes format 1, atomically.
void write_trace(const std::string& path, const Trace& trace);

// Writes the events form: `alloc`, `free`, `free_old`, `step`. Other entries have no place in it.
void write_events_csv(const std::string& path, const Trace& trace);

}  // namespace berth
