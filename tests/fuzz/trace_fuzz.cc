// The readers of traces: format 1, both CSV forms, and what is made of what they accept.
#include "csrc/core/check.h"
#include "csrc/trace/chunk_frame.h"
#include "csrc/trace/file.h"
#include "csrc/trace/step.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/operator_graph.h"
#include "tests/support/trace_files.h"
#include "tests/trace/random_trace.h"

#include <cstring>
#include <exception>
#include <string_view>

namespace berth {
namespace {

using Data = std::span<const std::byte>;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

// What trace.h promises of a trace that was read.
void check(const Trace& trace) {
  for (std::size_t i = 0; i < trace.entries.size(); ++i) {
    const trace::Entry& entry = trace.entries[i];
    if (i != 0) require(trace.entries[i - 1].tick < entry.tick, "ticks ascend");
    if (const auto* request = std::get_if<trace::Request>(&entry.event)) {
      require(request->lane < trace.lanes.size(), "lanes are in range");
      require(request->bytes <= kMaxBytes && request->id != 0, "requests are legal");
    } else if (const auto* begin = std::get_if<trace::RangeBegin>(&entry.event)) {
      require(begin->name < trace.strings.size(), "texts are in range");
    } else if (const auto* operand = std::get_if<trace::Operand>(&entry.event)) {
      require(operand->shape < trace.shapes.size(), "shapes are in range");
    }
  }
}

void check(const Step& step) {
  require(step.repeats >= 2 && !step.lanes.empty(), "a step repeats");
  std::vector<std::uint32_t> next(step.lanes.size(), 0);
  for (const StepRequest& request : step.requests) {
    const StepLane& lane = step.lanes.at(request.lane);
    require(request.birth == next[request.lane]++, "births ascend by one");
    require(request.length >= 1 && request.length <= lane.period, "lengths are legal");
    require(request.bytes != 0, "requests have bytes");
  }
  for (std::size_t i = 0; i < step.lanes.size(); ++i) {
    require(next[i] == step.lanes[i].period, "a period is all requests of its lane");
    for (const std::uint32_t mark : step.lanes[i].marks)
      require(mark < step.lanes[i].period, "marks are ticks");
  }
  for (const StepEdge& edge : step.edges) {
    require(edge.from_tick <= step.lanes.at(edge.from_lane).period &&
                edge.to_tick < step.lanes.at(edge.to_lane).period && edge.delta <= 1,
            "edges are legal");
  }
}

template <class Function>
void refuses_by_error(Function function) {
  try {
    function();
  } catch (const Error& e) {
    require(e.kind() == ErrorKind::kInput, "refusals are input errors");
  }
}

fuzz::Input as_input(Data data) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(data.data());
  return {bytes, bytes + data.size()};
}

fuzz::Input as_input(std::string_view text) { return as_input(std::as_bytes(std::span(text))); }

}  // namespace

namespace fuzz {

std::vector<std::pair<std::string, Input>> seeds() {
  std::vector<std::pair<std::string, Input>> all;
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Trace trace = test::random_trace(seed, 40 * seed);
    all.emplace_back("random" + std::to_string(seed), as_input(serialize_trace(trace)));
  }
  test::TraceBuilder steps;
  for (int i = 0; i < 6; ++i) {
    const auto a = steps.allocate(100, 0);
    steps.record(5, 0);
    const auto b = steps.allocate(200, 1);
    steps.wait(5, 1);
    steps.free(a);
    steps.free(b);
    steps.mark();
  }
  all.emplace_back("steps", as_input(serialize_trace(steps.trace())));
  // Several small chunks.
  const trace_file::FileHeader header = trace_file::make_file_header(7);
  std::vector<std::byte> file(header.begin(), header.end());
  const std::vector<std::byte> whole = serialize_trace(steps.trace());
  const auto first = trace_file::parse_chunk(whole, trace_file::kFileHeaderBytes);
  for (std::uint64_t i = 0; first && i < 3; ++i)
    trace_file::append_chunk(file, 7, i, first->payload);
  all.emplace_back("chunks", as_input(file));
  all.emplace_back("events", as_input("action,id,bytes,stream\nalloc,0,100,0\nstep,,,\n"
                                      "alloc,1,5,7\nfree,0,,\nfree_old,,512,\nstep,,,\n"));
  all.emplace_back("lifetimes", as_input("id,lower,upper,size,offset\na,0,5,10,0\nb,5,9,20,\n"));
  return all;
}

// The header's checksum, then each chunk's as far as their lengths lead.
void repair(Input& input) {
  using namespace trace_file;
  if (input.size() < kFileHeaderBytes ||
      std::memcmp(input.data(), kFileMagic.data(), kFileMagic.size()) != 0)
    return;
  std::uint64_t file_id = 0;
  std::memcpy(&file_id, input.data() + 16, sizeof file_id);
  const FileHeader header = make_file_header(file_id);
  std::memcpy(input.data(), header.data(), header.size());
  std::size_t at = kFileHeaderBytes;
  for (std::uint64_t sequence = 0; at + kChunkHeaderBytes <= input.size(); ++sequence) {
    std::uint32_t length = 0;
    std::memcpy(&length, input.data() + at + 4, sizeof length);
    length = std::min<std::uint32_t>(
        length, static_cast<std::uint32_t>(input.size() - at - kChunkHeaderBytes));
    length -= length % 8;
    std::vector<std::byte> chunk;
    const auto* payload = reinterpret_cast<const std::byte*>(input.data() + at + kChunkHeaderBytes);
    append_chunk(chunk, file_id, sequence, {payload, length});
    std::memcpy(input.data() + at, chunk.data(), chunk.size());
    at += chunk.size();
  }
}

}  // namespace fuzz
}  // namespace berth

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace berth;
  // A copy of its own, so that a read beyond the end is seen, aligned as a file that was read.
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  refuses_by_error([&] { (void)parse_lifetimes(file, "input"); });
  refuses_by_error([&] {
    const Trace trace = parse_trace(file, "input");
    check(trace);
    const Trace again = parse_trace(serialize_trace(trace), "again");
    require(again.entries.size() == trace.entries.size(), "what is written reads back");
    if (const auto step = extract_step(trace)) check(*step);
    const test::OperatorGraph graph(trace);
    require(graph.operators().size() <= trace.entries.size(), "operators come from entries");
  });
  return 0;
}
