#pragma once

#include "csrc/core/bytes.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

// Files packed with gzip, by zlib. All throw Error(kInput), or kUsage where they write, that names
// the file where berth was built without zlib.
namespace berth {

// Whether a file that begins so is packed.
[[nodiscard]] bool is_gzip(std::span<const std::byte> head) noexcept;

// What a file unpacks to, of one member or several; as with gzip, what follows the last one and is
// none is left out. It is read twice and only counted the first time, so that one which unpacks to
// more than `limit` takes no memory. Throws Error(kInput) for that, and where it is damaged or ends
// early.
[[nodiscard]] std::vector<std::byte> gunzip(const std::string& path, Bytes limit);

// The first bytes of it: at most `count`.
[[nodiscard]] std::vector<std::byte> gunzip_head(const std::string& path, std::size_t count);

// Writes a packed file, atomically. Throws Error(kSystem).
void write_gzip(const std::string& path, std::span<const std::byte> data);

}  // namespace berth
