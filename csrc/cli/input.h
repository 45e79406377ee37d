#pragma once

#include "csrc/trace/trace.h"

#include <span>
#include <string>
#include <string_view>

namespace berth::cli {

// What a file named on the command line is, told by its content and never by its name.
enum class InputKind {
  kPlan,
  kSchedule,
  kGraph,  // berth's binary file
  kTrace,  // format 1 or events CSV
  kLifetimes,
  kStatistics,  // JSON that a run wrote
};

// Throws Error(kInput) for what cannot be read and for what is none of these; of a pickle it says
// that `berth import` is wanted.
[[nodiscard]] InputKind identify(const std::string& path);

// "a plan", "a JSON object": for messages.
[[nodiscard]] std::string_view name_of(InputKind kind) noexcept;

// Reads a trace, or lifetimes as one. Throws Error(kInput), for all else too.
[[nodiscard]] Trace read_trace_input(const std::string& path);

// Throws where no file of ours can come to stand at `path`: Error(kUsage) where it is a folder or
// in none, Error(kSystem) where its folder takes no new file. To be asked before work is done for
// it.
void check_output(const std::string& path);

// The same of a trace that another program is to write: the name may hold {rank} and the like, and
// what is there must be a regular file.
void check_trace_output(const std::string& path);

// Writes a file atomically; what is there and is no regular file (a pipe, /dev/stdout) is written
// to, not replaced. Throws Error(kSystem).
void write_output(const std::string& path, std::span<const std::byte> data);
void write_output(const std::string& path, std::string_view text);

}  // namespace berth::cli
