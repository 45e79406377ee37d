#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace berth::cli {

// A file that a command is going to write, and the option that named it. An empty path: none.
// `-` is standard output.
struct OutputFile {
  std::string_view option;
  std::string path;
};

// To be asked before work is done: throws where a file of a command cannot be written, as
// check_output() does, and Error(kUsage) where one is a file that the command reads, or where two
// are one file, also by way of links. Files of /dev/null are nobody's.
//
// Where one is standard output, print() writes to standard error from now on; with `json` that is
// refused, Error(kUsage), for the object belongs on standard output.
void check_files(std::span<const std::string> inputs, std::initializer_list<OutputFile> outputs,
                 bool json);

// The same of links and of two outputs alone, for files that another program writes.
void check_distinct(std::span<const std::string> inputs, std::initializer_list<OutputFile> outputs);

// Throws where no file of ours can come to stand at `path`: Error(kUsage) where it is a folder or
// in none, Error(kSystem) where its folder takes no new file.
void check_output(const std::string& path);

// The same of a trace that another program is to write: the name may hold {rank} and the like, and
// what is there must be a regular file.
void check_trace_output(const std::string& path);

// Whether what is written to `path` goes to standard output.
[[nodiscard]] bool is_standard_output(const std::string& path);

// Whether a file at `path` would be written to, not replaced: standard output, a pipe, a device.
[[nodiscard]] bool is_stream(const std::string& path);

// Replaces a file atomically; writes to what is_stream(). Throws Error(kSystem).
void write_output(const std::string& path, std::span<const std::byte> data);
void write_output(const std::string& path, std::string_view text);

}  // namespace berth::cli
