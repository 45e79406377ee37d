#include "csrc/trace/write.h"

#include "csrc/core/file.h"
#include "csrc/trace/chunk_encoder.h"
#include "csrc/trace/chunk_frame.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

namespace berth {

std::vector<std::byte> serialize_trace(const Trace& trace) {
  using namespace trace_file;
  const std::uint64_t file_id = make_file_id();
  const FileHeader header = make_file_header(file_id);
  std::vector<std::byte> file(header.begin(), header.end());
  std::uint64_t sequence = 0;
  ChunkEncoder encoder;
  const auto emit = [&](bool end = false) {
    append_chunk(file, file_id, sequence++, encoder.finish(end));
  };
  // Whatever is added next fits the chunk.
  const auto make_room = [&](std::size_t bytes) {
    if (encoder.bytes() + bytes > kChunkBytes - 1024) emit();
  };
  encoder.set_start(trace.program, trace.alignment);
  emit();
  // The first of strings and shapes are there in every trace; all come before what names them.
  for (std::size_t i = 1; i < trace.strings.size(); ++i) {
    const auto text = std::string_view(trace.strings[i]).substr(0, kMaxStringBytes);
    make_room(text.size() + 16);
    encoder.add_string(text);
  }
  for (std::size_t i = 1; i < trace.shapes.size(); ++i) {
    const std::span<const std::int64_t> shape(
        trace.shapes[i].data(), std::min(trace.shapes[i].size(), kMaxShapeDimensions));
    make_room(shape.size_bytes() + 16);
    encoder.add_shape(shape);
  }
  for (const trace::Lane& lane : trace.lanes) {
    make_room(16);
    encoder.add_lane(lane.key);
  }
  for (const trace::Entry& entry : trace.entries) {
    make_room(kMaxEntryBytes);
    encoder.add(entry);
  }
  if (!encoder.empty() || trace.closed) emit(trace.closed);
  return file;
}

void write_trace(const std::string& path, const Trace& trace) {
  write_file_atomically(path, serialize_trace(trace));
}

}  // namespace berth
