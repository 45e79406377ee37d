#pragma once

#include "csrc/core/bytes.h"

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace berth {

// Reads a whole regular file into private memory (no live mapping). Throws Error(kInput) for what
// is no regular readable file or exceeds `limit`, Error(kSystem) where reading fails. Names the
// path.
[[nodiscard]] std::vector<std::byte> read_file(const std::string& path, Bytes limit);

// From now on pipes and terminals are read too, and `-` is standard input. What can be read only
// once is kept in memory at its first use, whole and with at most `limit` bytes, and later calls
// read what was kept. For programs: reading a pipe waits until its writer closes it. Call it once,
// before the first read.
void read_pipes_too(Bytes limit);

// The path under which the system opens what read_file() reads from `path`: the path itself, or one
// in /proc for what was kept of a pipe. Throws as read_file() does.
[[nodiscard]] std::string readable_path(const std::string& path);

// The first `count` bytes of a regular file, fewer where it is shorter. Throws as read_file() does.
[[nodiscard]] std::vector<std::byte> read_file_head(const std::string& path, std::size_t count);

// Where a chain of symbolic links leads, whether a file is there or not. Throws Error(kSystem)
// where it leads nowhere.
[[nodiscard]] std::string end_of_links(std::string path);

// Whether a file of any kind is at `path`; of a symbolic link, at its end. Throws Error(kSystem)
// where that cannot be told.
[[nodiscard]] bool is_there(const std::string& path);

// Whether something is at `path`, at the end of its links, that is no regular file: a device, a
// pipe, a folder.
[[nodiscard]] bool is_special(const std::string& path);

// Replaces the file at `path` atomically: a temporary file beside it (0600, O_EXCL), fsync, rename,
// fsync of the folder. Where `path` is a symbolic link the file at its end is replaced, and the
// link stays. After a crash the file is the old one or the new one, whole; of several processes
// that write it at a time one has written it in the end. Throws Error(kSystem) and removes the
// temporary file where anything fails. What is_special() is written to, and not replaced.
void write_file_atomically(const std::string& path, std::span<const std::byte> data);
// The same with what `write` writes to the descriptor that it is given, and throws where it cannot.
void write_file_atomically_with(const std::string& path, const std::function<void(int)>& write);

}  // namespace berth
