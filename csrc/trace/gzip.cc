#include "csrc/trace/gzip.h"

#include "csrc/core/check.h"

#ifdef BERTH_HAVE_ZLIB
#include <zlib.h>

#include <algorithm>
#endif

namespace berth {

bool is_gzip(std::span<const std::byte> data) noexcept {
  return data.size() >= 2 && data[0] == std::byte{0x1F} && data[1] == std::byte{0x8B};
}

#ifdef BERTH_HAVE_ZLIB
namespace {

constexpr int kGzip = 16;  // added to the window bits: the gzip frame, not zlib's
constexpr std::size_t kPiece = 1 << 20;

// Inflates piece by piece, so that memory follows what came out and never what a header claims.
class Inflater {
 public:
  explicit Inflater(std::span<const std::byte> data) : data_(data) {
    ok_ = inflateInit2(&stream_, MAX_WBITS + kGzip) == Z_OK;
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  enum class Outcome { kMore, kDone, kDamaged, kShort };
  // Unpacks into `out`; `written` says how much came.
  Outcome next(std::span<std::byte> out, std::size_t& written) {
    written = 0;
    if (!ok_) return Outcome::kDamaged;
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    const auto count = [&] { return written = out.size() - stream_.avail_out; };
    while (stream_.avail_out != 0) {
      if (stream_.avail_in == 0) {
        const std::size_t piece = std::min(data_.size() - taken_, kPiece);
        // zlib does not write to its input; its C interface only says so with a macro.
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(data_.data() + taken_));
        stream_.avail_in = static_cast<uInt>(piece);
        taken_ += piece;
      }
      const bool input_ended = stream_.avail_in == 0;
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        const std::size_t left = data_.size() - taken_ + stream_.avail_in;
        if (left == 0) return count(), Outcome::kDone;
        if (inflateReset(&stream_) != Z_OK) return count(), Outcome::kDamaged;
      } else if (result == Z_BUF_ERROR && input_ended) {
        return count(), Outcome::kShort;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return count(), Outcome::kDamaged;
      }
    }
    return count(), Outcome::kMore;
  }

 private:
  std::span<const std::byte> data_;
  std::size_t taken_ = 0;
  z_stream stream_{};
  bool ok_ = false;
};

}  // namespace

std::vector<std::byte> gunzip(std::span<const std::byte> data, Bytes limit,
                              const std::string& name) {
  Inflater inflater(data);
  std::vector<std::byte> out;
  for (;;) {
    const std::size_t before = out.size();
    // One byte beyond the limit is enough to know.
    const Bytes room = limit - before + 1;
    out.resize(before + static_cast<std::size_t>(std::min<Bytes>(room, kPiece)));
    std::size_t written = 0;
    const Inflater::Outcome outcome = inflater.next(std::span(out).subspan(before), written);
    out.resize(before + written);
    BERTH_CHECK(out.size() <= limit, kInput, "'{}' unpacks to more than the limit of {}", name,
                format_bytes(limit));
    BERTH_CHECK(outcome != Inflater::Outcome::kShort, kInput,
                "'{}' is damaged: its gzip data ends early", name);
    BERTH_CHECK(outcome != Inflater::Outcome::kDamaged, kInput,
                "'{}' is damaged: its gzip data is invalid after {} bytes unpacked", name,
                out.size());
    if (outcome == Inflater::Outcome::kDone) return out;
  }
}

std::vector<std::byte> gunzip_head(std::span<const std::byte> data, std::size_t count,
                                   const std::string&) {
  Inflater inflater(data);
  std::vector<std::byte> out(count);
  std::size_t written = 0;
  (void)inflater.next(out, written);
  out.resize(written);
  return out;
}

std::vector<std::byte> gzip(std::span<const std::byte> data, const std::string& name) {
  z_stream stream{};
  BERTH_CHECK(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzip, 8,
                           Z_DEFAULT_STRATEGY) == Z_OK,
              kSystem, "cannot pack '{}': zlib gives no memory", name);
  std::vector<std::byte> out;
  std::size_t taken = 0;
  int result = Z_OK;
  while (result == Z_OK) {
    const std::size_t before = out.size();
    out.resize(before + kPiece);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream.avail_out = static_cast<uInt>(kPiece);
    const std::size_t piece = std::min(data.size() - taken, kPiece);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(data.data() + taken));
    stream.avail_in = static_cast<uInt>(piece);
    result = deflate(&stream, taken + piece == data.size() ? Z_FINISH : Z_NO_FLUSH);
    taken += piece - stream.avail_in;
    out.resize(before + kPiece - stream.avail_out);
  }
  deflateEnd(&stream);
  BERTH_CHECK(result == Z_STREAM_END, kSystem, "cannot pack '{}': zlib says {}", name, result);
  return out;
}

#else

std::vector<std::byte> gunzip(std::span<const std::byte>, Bytes, const std::string& name) {
  throw Error(ErrorKind::kInput,
              fmt::format("'{}' is packed with gzip, and this berth was built without zlib: unpack "
                          "it first",
                          name));
}

std::vector<std::byte> gunzip_head(std::span<const std::byte> data, std::size_t,
                                   const std::string& name) {
  return gunzip(data, 0, name);
}

std::vector<std::byte> gzip(std::span<const std::byte>, const std::string& name) {
  throw Error(ErrorKind::kUsage,
              fmt::format("cannot pack '{}': this berth was built without zlib", name));
}

#endif

}  // namespace berth
