#pragma once

#include "csrc/trace/trace.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace berth {

// The forms that recorded requests come in, told apart by their content; a file of each may be
// packed with gzip, and then unpacks to 1 GiB at most.
enum class TraceForm {
  kTrace,      // format 1, `plans/README.md`
  kEvents,     // CSV `action,id,bytes,stream`
  kLifetimes,  // CSV `id,lower,upper,size`
};

// The form of a file by its beginning, which is not packed: kTraceHeadBytes of it, or all. Nothing
// where it is none of them.
inline constexpr std::size_t kTraceHeadBytes = 256;
[[nodiscard]] std::optional<TraceForm> trace_form(std::span<const std::byte> head);

// The first bytes of what a file holds, at most `count`.
struct FileHead {
  bool packed = false;           // with gzip
  std::vector<std::byte> bytes;  // unpacked
};
[[nodiscard]] FileHead read_file_beginning(const std::string& path, std::size_t count);

// Reads a trace of any form (parse_trace: not packed). Trusts nothing: throws Error(kInput) that
// names path, line or chunk, and the reason. A torn tail is cut and counted in Trace::cut_bytes.
//
// Events: `alloc,ID,BYTES,STREAM`, `free,ID,,`, `free_old,,BYTES,` (a block from before the
// recording), `step,,,`; other fields may be given. A stream is the key of a lane; a step without
// one belongs to the lane of the request before it. Blocks are numbered ID + 1; alignment is 512,
// as sizes of PyTorch's CUDA allocator are rounded.
//
// Lifetimes: the k-th row is block k; at one time ends come before births; alignment is 1.
[[nodiscard]] Trace read_trace(const std::string& path);
[[nodiscard]] Trace parse_trace(std::span<const std::byte> data, const std::string& name);

// One row of the lifetimes form: `size` bytes alive over [lower, upper), in any unit of time.
struct Lifetime {
  std::string id;
  std::uint64_t lower = 0;
  std::uint64_t upper = 0;
  Bytes size = 0;
  friend bool operator==(const Lifetime&, const Lifetime&) = default;
};

// Reads the rows in their order; a further column `offset` is ignored. Throws Error(kInput) naming
// the line for no size, an empty or reversed lifetime, an id that was there before, and where the
// sizes together exceed kMaxBytes.
[[nodiscard]] std::vector<Lifetime> read_lifetimes(const std::string& path);
[[nodiscard]] std::vector<Lifetime> parse_lifetimes(std::span<const std::byte> data,
                                                    const std::string& name);

// Writes the rows with a column `offset`, atomically; packed with gzip where the path ends in
// ".gz". Requires as many offsets as rows.
void write_lifetimes(const std::string& path, std::span<const Lifetime> rows,
                     std::span<const Bytes> offsets);

}  // namespace berth
