#pragma once

#include "csrc/trace/file.h"
#include "csrc/trace/trace.h"

#include <optional>
#include <string>
#include <string_view>

namespace berth::cli {

// What a file named on the command line is, told by its content and never by its name.
enum class InputKind {
  kPlan,
  kSchedule,
  kGraph,  // berth's binary file, or a form that is text and no JSON
  kTrace,  // format 1 or events CSV
  kLifetimes,
  kStatistics,  // JSON that a run wrote
  kPickle,      // such as a memory snapshot of PyTorch
};

// The beginning of a file, read once, and what that tells.
struct OpenedFile {
  // Throws Error(kInput) where the file cannot be read.
  explicit OpenedFile(std::string file);

  std::string path;
  FileHead head;
  std::optional<InputKind> kind;  // nothing: none of these
};

// What commands read, for their messages.
inline constexpr std::string_view kTracesAndCsv =
    "a trace, an events CSV (its first line is 'action,id,bytes,stream') or a lifetimes CSV "
    "('id,lower,upper,size'), plain or gzip";

// Throws Error(kInput) for what cannot be read, and for what is none of these, with `wanted`: what
// the command reads. Of a pickle it says that `berth import` is wanted.
[[nodiscard]] InputKind identify(const OpenedFile& file, std::string_view wanted = kTracesAndCsv);

// "a plan", "a JSON object": for messages.
[[nodiscard]] std::string_view name_of(InputKind kind) noexcept;

// Reads a trace, or lifetimes as one. Throws Error(kInput), for all else too.
[[nodiscard]] Trace read_trace_input(const OpenedFile& file);

}  // namespace berth::cli
