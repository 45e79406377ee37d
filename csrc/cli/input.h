#pragma once

#include <span>
#include <string>
#include <string_view>

namespace berth::cli {

// What a file named on the command line is, told by its content and never by its name.
enum class InputKind {
  kPlan,
  kTrace,  // format 1 or events CSV
  kLifetimes,
};

// Whether a file begins as a plan does.
[[nodiscard]] bool is_plan_file(const std::string& path);

// Throws Error(kInput) for what cannot be read and for what is none of these.
[[nodiscard]] InputKind identify(const std::string& path);

// Throws Error(kUsage) where no file of ours can come to stand at `path`: it is a folder, or in
// none. To be asked before work is done for it.
void check_output(const std::string& path);

// Writes a file atomically; what is there and is no regular file (a pipe, /dev/stdout) is written
// to, not replaced. Throws Error(kSystem).
void write_output(const std::string& path, std::span<const std::byte> data);
void write_output(const std::string& path, std::string_view text);

}  // namespace berth::cli
