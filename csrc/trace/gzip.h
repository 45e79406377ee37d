#pragma once

#include "csrc/core/bytes.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace berth {

[[nodiscard]] bool is_gzip(std::span<const std::byte> data) noexcept;

// Unpacks gzip data (one member or several). Throws Error(kInput) naming `name` where it is
// damaged, ends early or unpacks to more than `limit`, and where berth was built without zlib.
[[nodiscard]] std::vector<std::byte> gunzip(std::span<const std::byte> data, Bytes limit,
                                            const std::string& name);

// The first bytes of what `data` unpacks to: at most `count`, fewer where it is damaged.
[[nodiscard]] std::vector<std::byte> gunzip_head(std::span<const std::byte> data, std::size_t count,
                                                 const std::string& name);

// Packs data. Throws Error(kUsage) naming `name` where berth was built without zlib.
[[nodiscard]] std::vector<std::byte> gzip(std::span<const std::byte> data, const std::string& name);

}  // namespace berth
