#include "csrc/trace/gzip.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"

#include <fmt/format.h>

#ifdef BERTH_HAVE_ZLIB
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#endif

namespace berth {

bool is_gzip(std::span<const std::byte> head) noexcept {
  return head.size() >= 2 && head[0] == std::byte{0x1F} && head[1] == std::byte{0x8B};
}

#ifdef BERTH_HAVE_ZLIB
namespace {

constexpr std::size_t kPiece = 1 << 18;  // of one call

using PackedFile = std::unique_ptr<gzFile_s, int (*)(gzFile)>;

PackedFile open_packed(const std::string& path) {
  PackedFile file(::gzopen(readable_path(path).c_str(), "rbe"), ::gzclose);
  BERTH_CHECK(file != nullptr, kInput, "cannot open '{}': {}", path, std::strerror(errno));
  return file;
}

// Unpacks until `out` is full or the data ends. Returns how much came.
std::size_t read_some(gzFile file, std::span<std::byte> out, const std::string& path) {
  std::size_t done = 0;
  for (int got = 1; got > 0 && done < out.size(); done += static_cast<std::size_t>(got)) {
    const std::size_t piece = std::min(out.size() - done, kPiece);
    got = std::max(0, ::gzread(file, out.data() + done, static_cast<unsigned>(piece)));
  }
  int error = Z_OK;
  const char* const text = ::gzerror(file, &error);
  BERTH_CHECK(error != Z_BUF_ERROR, kInput, "'{}' is damaged: its gzip data ends early", path);
  BERTH_CHECK(error != Z_MEM_ERROR, kSystem, "cannot unpack '{}': zlib gives no memory", path);
  BERTH_CHECK(error != Z_ERRNO, kSystem, "cannot read '{}': {}", path, text);
  BERTH_CHECK(error == Z_OK, kInput, "'{}' is damaged: its gzip data is invalid ({})", path, text);
  return done;
}

}  // namespace

std::vector<std::byte> gunzip(const std::string& path, Bytes limit) {
  const PackedFile file = open_packed(path);
  std::vector<std::byte> piece(kPiece);
  Bytes size = 0;
  for (std::size_t got = kPiece; got == kPiece; size += got) {
    got = read_some(file.get(), piece, path);
    BERTH_CHECK(size + got <= limit, kInput, "'{}' unpacks to more than the limit of {}", path,
                format_bytes(limit));
  }
  BERTH_CHECK(::gzrewind(file.get()) == 0, kSystem, "cannot read '{}' again", path);
  std::vector<std::byte> data(size);
  data.resize(read_some(file.get(), data, path));  // less where somebody cuts it meanwhile
  return data;
}

std::vector<std::byte> gunzip_head(const std::string& path, std::size_t count) {
  std::vector<std::byte> head(count);
  head.resize(read_some(open_packed(path).get(), head, path));
  return head;
}

void write_gzip(const std::string& path, std::span<const std::byte> data) {
  write_file_atomically_with(path, [&](int fd) {
    const int own = ::dup(fd);  // gzclose() closes it
    PackedFile file(own < 0 ? nullptr : ::gzdopen(own, "wb"), ::gzclose);
    if (file == nullptr && own >= 0) ::close(own);
    bool written = file != nullptr;
    for (std::size_t done = 0; written && done < data.size();) {
      const std::size_t piece = std::min(data.size() - done, kPiece);
      written = ::gzwrite(file.get(), data.data() + done, static_cast<unsigned>(piece)) > 0;
      done += piece;
    }
    if (file != nullptr) written &= ::gzclose(file.release()) == Z_OK;
    BERTH_CHECK(written, kSystem, "cannot write '{}' packed: {}", path, std::strerror(errno));
  });
}

#else

namespace {
[[noreturn]] void refuse(const std::string& path) {
  throw Error(ErrorKind::kInput,
              fmt::format("'{}' is packed with gzip, and this berth was built without zlib: unpack "
                          "it first",
                          path));
}
}  // namespace

std::vector<std::byte> gunzip(const std::string& path, Bytes) { refuse(path); }
std::vector<std::byte> gunzip_head(const std::string& path, std::size_t) { refuse(path); }

void write_gzip(const std::string& path, std::span<const std::byte>) {
  throw Error(ErrorKind::kUsage,
              fmt::format("cannot pack '{}': this berth was built without zlib", path));
}

#endif

}  // namespace berth
