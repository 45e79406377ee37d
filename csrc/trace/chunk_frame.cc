#include "csrc/trace/chunk_frame.h"

#include "csrc/core/checksum.h"

#include <sys/random.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstring>

namespace berth::trace_file {
namespace {

static_assert(std::endian::native == std::endian::little, "trace files are little-endian");

constexpr std::uint32_t kChunkMagic = 0x4B4E4843;  // "CHNK"

template <class Number>
Number load(std::span<const std::byte> data, std::size_t offset) noexcept {
  Number value;
  std::memcpy(&value, data.data() + offset, sizeof value);
  return value;
}

template <class Number>
void store(std::byte* data, std::size_t offset, Number value) noexcept {
  std::memcpy(data + offset, &value, sizeof value);
}

std::uint64_t chunk_checksum(std::uint64_t file_id, std::uint64_t sequence,
                             std::span<const std::byte> payload) noexcept {
  const std::uint64_t seed = hash_combine(hash_combine(file_id, sequence), payload.size());
  return checksum(payload, seed);
}

}  // namespace

std::uint64_t make_file_id() noexcept {
  std::uint64_t id = 0;
  if (::getrandom(&id, sizeof id, GRND_NONBLOCK) != sizeof id || id == 0) {
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    id = hash_combine(static_cast<std::uint64_t>(now), static_cast<std::uint64_t>(::getpid()));
  }
  return id;
}

FileHeader make_file_header(std::uint64_t file_id) noexcept {
  FileHeader header{};
  std::memcpy(header.data(), kFileMagic.data(), kFileMagic.size());
  store<std::uint32_t>(header.data(), 8, kFormatVersion);
  store<std::uint32_t>(header.data(), 12, kFileHeaderBytes);
  store<std::uint64_t>(header.data(), 16, file_id);
  store<std::uint64_t>(header.data(), 56, checksum(std::span(header).first(56)));
  return header;
}

FileHeaderResult parse_file_header(std::span<const std::byte> file) noexcept {
  FileHeaderResult result;
  if (file.size() < kFileMagic.size() + 4 ||
      std::memcmp(file.data(), kFileMagic.data(), kFileMagic.size()) != 0) {
    result.problem = "it does not begin as one";
    return result;
  }
  // Before the checksum: a later format may have another header.
  result.version = load<std::uint32_t>(file, 8);
  if (result.version != kFormatVersion) {
    result.problem = "version";
  } else if (file.size() < kFileHeaderBytes) {
    result.problem = "it ends within its header";
  } else if (load<std::uint64_t>(file, 56) != checksum(file.first(56))) {
    result.problem = "the checksum of its header differs";
  } else {
    result.file_id = load<std::uint64_t>(file, 16);
  }
  return result;
}

void append_chunk(std::vector<std::byte>& out, std::uint64_t file_id, std::uint64_t sequence,
                  std::span<const std::byte> payload) {
  const std::size_t begin = out.size();
  out.resize(begin + kChunkHeaderBytes);
  std::byte* const header = out.data() + begin;
  store<std::uint32_t>(header, 0, kChunkMagic);
  store<std::uint32_t>(header, 4, static_cast<std::uint32_t>(payload.size()));
  store<std::uint64_t>(header, 8, sequence);
  store<std::uint64_t>(header, 16, file_id);
  store<std::uint64_t>(header, 24, chunk_checksum(file_id, sequence, payload));
  out.insert(out.end(), payload.begin(), payload.end());
}

std::optional<ChunkFrame> parse_chunk(std::span<const std::byte> file, std::size_t position,
                                      std::string_view* problem) noexcept {
  std::string_view ignored;
  std::string_view& why = problem != nullptr ? *problem : ignored;
  if (position > file.size() || file.size() - position < kChunkHeaderBytes) {
    why = "the file ends within its header";
    return std::nullopt;
  }
  const std::span<const std::byte> rest = file.subspan(position);
  if (load<std::uint32_t>(rest, 0) != kChunkMagic) {
    why = "it does not begin as a chunk";
    return std::nullopt;
  }
  const std::size_t length = load<std::uint32_t>(rest, 4);
  if (length % 8 != 0 || length > kMaxChunkBytes) {
    why = "its length is impossible";
    return std::nullopt;
  }
  if (length > rest.size() - kChunkHeaderBytes) {
    why = "the file ends within it";
    return std::nullopt;
  }
  ChunkFrame chunk;
  chunk.sequence = load<std::uint64_t>(rest, 8);
  chunk.file_id = load<std::uint64_t>(rest, 16);
  chunk.payload = rest.subspan(kChunkHeaderBytes, length);
  if (load<std::uint64_t>(rest, 24) !=
      chunk_checksum(chunk.file_id, chunk.sequence, chunk.payload)) {
    why = "its checksum differs";
    return std::nullopt;
  }
  return chunk;
}

std::optional<std::size_t> find_chunk(std::span<const std::byte> file,
                                      std::size_t position) noexcept {
  // Headers forged by the thousand, each with a long payload, must not cost their product.
  std::size_t budget = 4 * file.size() + kMaxChunkBytes;
  // Chunks begin at multiples of 8, for the file header and all lengths are such.
  for (std::size_t at = (position / 8 + 1) * 8; at + kChunkHeaderBytes <= file.size(); at += 8) {
    if (load<std::uint32_t>(file, at) != kChunkMagic) continue;
    const std::size_t work = kChunkHeaderBytes + load<std::uint32_t>(file, at + 4);
    if (work > budget) return at;
    if (parse_chunk(file, at)) return at;
    if (work <= file.size() - at) budget -= work;
  }
  return std::nullopt;
}

}  // namespace berth::trace_file
