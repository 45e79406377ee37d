#pragma once

#include "csrc/core/bytes.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

// The frame of a trace file: a header, then chunks. All numbers are little-endian.
namespace berth::trace_file {

inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::string_view kFileMagic = "BERTHTRC";
inline constexpr std::size_t kFileHeaderBytes = 64;
inline constexpr std::size_t kChunkHeaderBytes = 32;
// What berth writes at most, header included, and what it accepts.
inline constexpr std::size_t kChunkBytes = 64 * 1024;
inline constexpr std::size_t kMaxChunkBytes = 16 * 1024 * 1024;

using FileHeader = std::array<std::byte, kFileHeaderBytes>;

[[nodiscard]] FileHeader make_file_header(std::uint64_t file_id) noexcept;

// The id of the file, or why it is no trace that this berth reads.
struct FileHeaderResult {
  std::uint64_t file_id = 0;
  std::string_view problem;   // empty where all is well
  std::uint32_t version = 0;  // of the file
};
[[nodiscard]] FileHeaderResult parse_file_header(std::span<const std::byte> file) noexcept;

// A number that no other file has, as far as chance allows.
[[nodiscard]] std::uint64_t make_file_id() noexcept;

// Appends header and payload to `out`; the payload's length is a multiple of 8.
void append_chunk(std::vector<std::byte>& out, std::uint64_t file_id, std::uint64_t sequence,
                  std::span<const std::byte> payload);

struct ChunkFrame {
  std::uint64_t file_id = 0;
  std::uint64_t sequence = 0;
  std::span<const std::byte> payload;
};

// The chunk that starts at `position`, if its frame and checksum are right; else `problem` says
// what is wrong.
[[nodiscard]] std::optional<ChunkFrame> parse_chunk(std::span<const std::byte> file,
                                                    std::size_t position,
                                                    std::string_view* problem = nullptr) noexcept;

// Where after `position` the next good chunk of any file starts. Work is bounded by a few passes
// over the file; one that was made to exceed that counts as having such a chunk.
[[nodiscard]] std::optional<std::size_t> find_chunk(std::span<const std::byte> file,
                                                    std::size_t position) noexcept;

}  // namespace berth::trace_file
