#include "csrc/trace/file.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/trace/chunk_decoder.h"
#include "csrc/trace/chunk_frame.h"
#include "csrc/trace/csv.h"
#include "csrc/trace/csv_forms.h"
#include "csrc/trace/gzip.h"

#include <algorithm>

namespace berth {
namespace {

constexpr Bytes kMaxFileBytes = Bytes{4} << 30;
constexpr Bytes kMaxUnpackedBytes = Bytes{1} << 30;

using Data = std::span<const std::byte>;

std::string_view as_text(Data data) {
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

bool begins_with(Data data, std::string_view text) {
  std::string_view head = as_text(data);
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  return head.starts_with(text);
}

TraceForm form_of(Data data, const std::string& name) {
  BERTH_CHECK(!data.empty(), kInput, "'{}' is empty", name);
  if (const auto form = trace_form(data)) return *form;
  const std::string_view text = as_text(data);
  throw Error(ErrorKind::kInput,
              fmt::format("'{}' is no trace: it begins with '{}', not with {} nor with a line '{}' "
                          "or '{}'",
                          name, csv::printable(text.substr(0, text.find_first_of("\r\n"))),
                          trace_file::kFileMagic, csv::kEventsHeader, csv::kLifetimesHeader));
}

class FormatReader {
 public:
  FormatReader(Data file, const std::string& name) : file_(file), name_(name) {}

  Trace read() {
    const trace_file::FileHeaderResult header = trace_file::parse_file_header(file_);
    BERTH_CHECK(header.problem != "version", kInput,
                "'{}' is a trace of format {}, this berth reads format {}", name_, header.version,
                trace_file::kFormatVersion);
    BERTH_CHECK(header.problem.empty(), kInput, "'{}' is no whole trace: {}", name_,
                header.problem);
    trace_.closed = false;
    std::size_t position = trace_file::kFileHeaderBytes;
    for (std::uint64_t expected = 0; position < file_.size(); ++expected) {
      std::string_view problem;
      const auto chunk = trace_file::parse_chunk(file_, position, &problem);
      if (!chunk) {
        const auto next = trace_file::find_chunk(file_, position);
        if (next)
          damaged(expected, position,
                  fmt::format("{}, though a chunk follows at byte {}", problem, *next));
        trace_.cut_bytes = file_.size() - position;
        break;
      }
      if (chunk->file_id != header.file_id)
        damaged(expected, position,
                fmt::format("it belongs to file {:016x}, not to this one, {:016x}", chunk->file_id,
                            header.file_id));
      if (chunk->sequence != expected)
        damaged(expected, position,
                fmt::format("it is number {}: {}", chunk->sequence,
                            chunk->sequence < expected ? "chunks are repeated or reordered"
                                                       : "chunks before it are missing"));
      if (trace_.closed) damaged(expected, position, "it follows the end of the recording");
      trace_file::DecodeResult decoded = trace_file::decode_chunk(chunk->payload, trace_);
      if (decoded.problem.empty() && decoded.start != (expected == 0))
        decoded.problem =
            decoded.start ? "it starts the recording again" : "it does not say what was recorded";
      if (!decoded.problem.empty()) damaged(expected, position, decoded.problem);
      trace_.closed = decoded.end;
      position += trace_file::kChunkHeaderBytes + chunk->payload.size();
    }
    const std::string problem = trace::sort_and_check(trace_);
    BERTH_CHECK(problem.empty(), kInput, "'{}' is damaged: {}", name_, problem);
    return std::move(trace_);
  }

 private:
  [[noreturn]] void damaged(std::uint64_t chunk, std::size_t position, std::string_view problem) {
    throw Error(ErrorKind::kInput, fmt::format("'{}' is damaged in chunk {} at byte {}: {}", name_,
                                               chunk, position, problem));
  }

  Data file_;
  const std::string& name_;
  Trace trace_;
};

// The file's content, unpacked where it is packed.
std::vector<std::byte> read_content(const std::string& path) {
  if (is_gzip(read_file_head(path, 2))) return gunzip(path, kMaxUnpackedBytes);
  return read_file(path, kMaxFileBytes);
}

void write_text(const std::string& path, const std::string& text) {
  const Data data = std::as_bytes(std::span(text));
  if (path.ends_with(".gz")) {
    write_gzip(path, data);
  } else {
    write_file_atomically(path, data);
  }
}

}  // namespace

std::optional<TraceForm> trace_form(Data head) {
  if (begins_with(head, trace_file::kFileMagic)) return TraceForm::kTrace;
  if (begins_with(head, csv::kEventsHeader)) return TraceForm::kEvents;
  if (begins_with(head, csv::kLifetimesHeader)) return TraceForm::kLifetimes;
  return std::nullopt;
}

FileHead read_file_beginning(const std::string& path, std::size_t count) {
  std::vector<std::byte> head = read_file_head(path, std::max<std::size_t>(count, 2));
  if (is_gzip(head)) return {true, gunzip_head(path, count)};
  head.resize(std::min(head.size(), count));
  return {false, std::move(head)};
}

Trace parse_trace(Data data, const std::string& name) {
  switch (form_of(data, name)) {
    case TraceForm::kEvents:
      return csv::parse_events(as_text(data), name);
    case TraceForm::kLifetimes:
      return csv::make_trace(csv::parse_lifetimes(as_text(data), name));
    case TraceForm::kTrace:
      break;
  }
  return FormatReader(data, name).read();
}

Trace read_trace(const std::string& path) { return parse_trace(read_content(path), path); }

std::vector<Lifetime> parse_lifetimes(Data data, const std::string& name) {
  BERTH_CHECK(form_of(data, name) == TraceForm::kLifetimes, kInput,
              "'{}' has no lifetimes: its first line is not '{}'", name, csv::kLifetimesHeader);
  return csv::parse_lifetimes(as_text(data), name);
}

std::vector<Lifetime> read_lifetimes(const std::string& path) {
  return parse_lifetimes(read_content(path), path);
}

void write_lifetimes(const std::string& path, std::span<const Lifetime> rows,
                     std::span<const Bytes> offsets) {
  write_text(path, csv::format_lifetimes(rows, offsets));
}

}  // namespace berth
