#pragma once

#include "csrc/core/file.h"
#include "csrc/trace/chunk_encoder.h"
#include "csrc/trace/chunk_frame.h"
#include "csrc/trace/csv_forms.h"
#include "csrc/trace/gzip.h"
#include "csrc/trace/trace.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

// Traces written whole, as nobody but tests does: programs record entry by entry.
namespace berth::test {

// Format 1.
inline std::vector<std::byte> serialize_trace(const Trace& trace) {
  using namespace trace_file;
  const std::uint64_t file_id = make_file_id();
  const FileHeader header = make_file_header(file_id);
  std::vector<std::byte> out(header.begin(), header.end());
  std::uint64_t sequence = 0;
  ChunkEncoder encoder;
  const auto flush_at = [&](std::size_t more) {
    if (encoder.bytes() + more > kChunkBytes - 1024)
      append_chunk(out, file_id, sequence++, encoder.finish());
  };
  encoder.set_start(trace.program, trace.alignment);
  for (std::size_t i = 1; i < trace.strings.size(); ++i) {
    flush_at(trace.strings[i].size());
    encoder.add_string(trace.strings[i]);
  }
  for (std::size_t i = 1; i < trace.shapes.size(); ++i) {
    flush_at(trace.shapes[i].size() * sizeof(std::int64_t));
    encoder.add_shape(trace.shapes[i]);
  }
  for (const trace::Lane& lane : trace.lanes) {
    flush_at(sizeof lane.key);
    encoder.add_lane(lane.key);
  }
  for (const trace::Entry& entry : trace.entries) {
    flush_at(kMaxEntryBytes);
    encoder.add(entry);
  }
  append_chunk(out, file_id, sequence, encoder.finish(/*end=*/trace.closed));
  return out;
}

inline void write_trace(const std::string& path, const Trace& trace) {
  write_file_atomically(path, serialize_trace(trace));
}

// The events form. Other entries than requests, frees and step marks have no place in it.
inline std::string format_events(const Trace& trace) {
  std::string text = fmt::format("{}\n", csv::kEventsHeader);
  const auto out = std::back_inserter(text);
  std::unordered_map<trace::BlockId, std::uint64_t> stream_of;
  for (const trace::Entry& entry : trace.entries) {
    if (const auto* request = std::get_if<trace::Request>(&entry.event)) {
      const std::uint64_t stream = trace.lanes[request->lane].key;
      stream_of.emplace(request->id, stream);
      fmt::format_to(out, "alloc,{},{},{}\n", request->id - 1, request->bytes, stream);
    } else if (const auto* free = std::get_if<trace::Free>(&entry.event)) {
      const auto it = stream_of.find(free->id);
      if (it != stream_of.end()) {
        fmt::format_to(out, "free,{},,{}\n", free->id - 1, it->second);
      } else if (free->id == 0 || free->id > kMaxBytes) {  // no number of the form
        fmt::format_to(out, "free_old,,,\n");
      } else {
        fmt::format_to(out, "free_old,{},,\n", free->id - 1);
      }
    } else if (const auto* mark = std::get_if<trace::StepMark>(&entry.event)) {
      fmt::format_to(out, "step,,,{}\n", trace.lanes[mark->lane].key);
    }
  }
  return text;
}

// Packed with gzip where the path ends in ".gz".
inline void write_events_csv(const std::string& path, const Trace& trace) {
  const std::string text = format_events(trace);
  const auto data = std::as_bytes(std::span(text));
  path.ends_with(".gz") ? write_gzip(path, data) : write_file_atomically(path, data);
}

}  // namespace berth::test
