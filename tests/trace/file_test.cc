#include "csrc/trace/file.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/trace/chunk_encoder.h"
#include "csrc/trace/chunk_frame.h"
#include "tests/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_files.h"
#include "tests/trace/equal_traces.h"
#include "tests/trace/random_trace.h"

#include <functional>

using namespace berth;
using Catch::Matchers::Contains;
using test::TraceBuilder;

namespace {

using Data = std::vector<std::byte>;

// The chunks of a file that is whole, as [first, last) of its bytes.
std::vector<std::pair<std::size_t, std::size_t>> chunks_of(const Data& file) {
  std::vector<std::pair<std::size_t, std::size_t>> chunks;
  std::size_t at = trace_file::kFileHeaderBytes;
  while (at < file.size()) {
    const auto chunk = trace_file::parse_chunk(file, at);
    REQUIRE(chunk);
    const std::size_t end = at + trace_file::kChunkHeaderBytes + chunk->payload.size();
    chunks.emplace_back(at, end);
    at = end;
  }
  return chunks;
}

// A file of one chunk that holds what `fill` adds, with right checksums.
Data file_of(const std::function<void(trace_file::ChunkEncoder&)>& fill) {
  const trace_file::FileHeader header = trace_file::make_file_header(7);
  Data file(header.begin(), header.end());
  trace_file::ChunkEncoder encoder;
  encoder.set_start({}, 64);
  encoder.add_lane(0);
  fill(encoder);
  trace_file::append_chunk(file, 7, 0, encoder.finish(true));
  return file;
}

Data file_of_entries(const std::vector<trace::Event>& events) {
  return file_of([&](trace_file::ChunkEncoder& encoder) {
    trace::Tick tick = 0;
    for (const trace::Event& event : events) encoder.add({tick++, 0, 0, event});
  });
}

Data concatenate(const Data& file,
                 std::initializer_list<std::pair<std::size_t, std::size_t>> parts) {
  Data result(file.begin(), file.begin() + trace_file::kFileHeaderBytes);
  for (const auto& [first, last] : parts)
    result.insert(result.end(), file.begin() + static_cast<std::ptrdiff_t>(first),
                  file.begin() + static_cast<std::ptrdiff_t>(last));
  return result;
}

// Enough for three chunks and more.
Data file_of_many_chunks() { return serialize_trace(test::random_trace(1, 6000)); }

}  // namespace

TEST_CASE("A trace with entries of every kind reads back as it was written", "[trace][file]") {
  const std::uint64_t seed = GENERATE(1, 2, 3, 4, 5);
  CAPTURE(seed);
  const Trace before = test::random_trace(seed, 5000);
  const test::TemporaryFolder folder;
  write_trace(folder / "a.trace", before);
  const Trace after = read_trace(folder / "a.trace");
  REQUIRE(test::equal(before, after));
  REQUIRE(after.closed);
  REQUIRE(after.cut_bytes == 0);
  REQUIRE(trace_form(read_file_beginning(folder / "a.trace", kTraceHeadBytes).bytes) ==
          TraceForm::kTrace);
}

TEST_CASE("An empty trace reads back", "[trace][file]") {
  const Trace after = parse_trace(serialize_trace(Trace{}), "x");
  REQUIRE(after.entries.empty());
  REQUIRE(after.closed);
}

TEST_CASE("No chunk that berth writes exceeds 64 KiB", "[trace][file]") {
  Trace t = test::random_trace(3, 5000);
  for (int i = 0; i < 100; ++i) t.strings.push_back(std::string(10000, 'a' + i % 26));
  const Data file = serialize_trace(t);
  for (const auto& [first, last] : chunks_of(file))
    REQUIRE(last - first <= trace_file::kChunkBytes);
  // A text is cut where it alone would fill a chunk.
  REQUIRE(parse_trace(file, "x").strings.back() ==
          std::string(trace_file::kMaxStringBytes, 'a' + 99 % 26));
}

TEST_CASE("Entries of several threads are merged by tick", "[trace][file]") {
  const Data file = file_of([](trace_file::ChunkEncoder& encoder) {
    for (const trace::Tick tick : {5, 1, 4, 2, 3})
      encoder.add({tick, 0, static_cast<trace::ThreadId>(tick % 2), trace::StepMark{0}});
  });
  const Trace trace = parse_trace(file, "x");
  REQUIRE(trace.entries.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) REQUIRE(trace.entries[i].tick == i + 1);
}

TEST_CASE("Every byte flipped in a trace is refused or cuts its tail", "[trace][file][damage]") {
  TraceBuilder builder;
  for (int i = 0; i < 5; ++i) builder.free(builder.allocate(100 + i));
  // Two chunks, so that there is a chunk before the last.
  const trace_file::FileHeader header = trace_file::make_file_header(7);
  Data file(header.begin(), header.end());
  trace_file::ChunkEncoder encoder;
  encoder.set_start({}, 64);
  encoder.add_lane(0);
  trace_file::append_chunk(file, 7, 0, encoder.finish());
  for (const trace::Entry& entry : builder.trace().entries) encoder.add(entry);
  trace_file::append_chunk(file, 7, 1, encoder.finish(true));
  const std::size_t last_chunk = chunks_of(file).back().first;

  for (std::size_t at = 0; at < file.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      Data damaged = file;
      damaged[at] ^= std::byte(1 << bit);
      CAPTURE(at, bit);
      if (at < last_chunk) {
        REQUIRE_THROWS_AS(parse_trace(damaged, "x"), Error);
      } else {
        const Trace trace = parse_trace(damaged, "x");
        REQUIRE(trace.cut_bytes == file.size() - last_chunk);
        REQUIRE(trace.entries.empty());
        REQUIRE_FALSE(trace.closed);
      }
    }
  }
}

TEST_CASE("A trace cut anywhere is read up to its last whole chunk", "[trace][file][damage]") {
  const Data file = serialize_trace(test::random_trace(9, 4000));
  const auto chunks = chunks_of(file);
  REQUIRE(chunks.size() >= 2);
  const std::size_t stride = 1009;  // every cut of a small file is tried below
  for (std::size_t size = trace_file::kFileHeaderBytes; size < file.size(); size += stride) {
    CAPTURE(size);
    const Trace trace = parse_trace(std::span(file).first(size), "x");
    std::size_t whole = trace_file::kFileHeaderBytes;
    for (const auto& [first, last] : chunks) {
      if (last <= size) whole = last;
    }
    REQUIRE(trace.cut_bytes == size - whole);
    REQUIRE_FALSE(trace.closed);
  }
}

TEST_CASE("A small trace cut at every byte is refused within its header and cut after it",
          "[trace][file][damage]") {
  const Data file = file_of_entries({trace::Request{1, 100, 0, 0}, trace::Free{1}});
  for (std::size_t size = 0; size < file.size(); ++size) {
    CAPTURE(size);
    const auto part = std::span(file).first(size);
    if (size < trace_file::kFileHeaderBytes) {
      REQUIRE_THROWS_AS(parse_trace(part, "x"), Error);
    } else {
      const Trace trace = parse_trace(part, "x");
      REQUIRE(trace.cut_bytes == size - trace_file::kFileHeaderBytes);
      REQUIRE(trace.entries.empty());
      REQUIRE_FALSE(trace.closed);
    }
  }
}

TEST_CASE("A bad chunk before good ones is damage and named", "[trace][file][damage]") {
  Data file = file_of_many_chunks();
  const auto chunks = chunks_of(file);
  REQUIRE(chunks.size() > 3);
  file[chunks[1].first + 1000] ^= std::byte{1};
  REQUIRE_THROWS_WITH(parse_trace(file, "a.trace"),
                      Contains("'a.trace' is damaged in chunk 1") &&
                          Contains("its checksum differs, though a chunk follows at byte " +
                                   std::to_string(chunks[2].first)));
}

TEST_CASE("Repeated and reordered and missing chunks are damage and named",
          "[trace][file][damage]") {
  const Data file = file_of_many_chunks();
  const auto c = chunks_of(file);
  REQUIRE_THROWS_WITH(parse_trace(concatenate(file, {c[0], c[1], c[1]}), "x"),
                      Contains("chunk 2") && Contains("it is number 1: chunks are repeated"));
  REQUIRE_THROWS_WITH(
      parse_trace(concatenate(file, {c[0], c[2], c[1]}), "x"),
      Contains("chunk 1") && Contains("it is number 2: chunks before it are missing"));
  REQUIRE_THROWS_WITH(parse_trace(concatenate(file, {c[1], c[2]}), "x"),
                      Contains("chunk 0") && Contains("missing"));
}

TEST_CASE("A chunk of another file is damage and both files are named", "[trace][file][damage]") {
  const Data file = file_of_many_chunks();
  const auto c = chunks_of(file);
  Data other = file_of_many_chunks();
  std::copy(file.begin() + static_cast<std::ptrdiff_t>(c[1].first),
            file.begin() + static_cast<std::ptrdiff_t>(c[1].second),
            other.begin() + static_cast<std::ptrdiff_t>(c[1].first));
  REQUIRE_THROWS_WITH(parse_trace(other, "x"),
                      Contains("chunk 1") && Contains("it belongs to file"));
}

TEST_CASE("Chunks after the end of a recording are damage", "[trace][file][damage]") {
  Data file = file_of_entries({trace::StepMark{0}});
  trace_file::ChunkEncoder encoder;
  encoder.add({9, 0, 0, trace::StepMark{0}});
  trace_file::append_chunk(file, 7, 1, encoder.finish());
  REQUIRE_THROWS_WITH(parse_trace(file, "x"), Contains("chunk 1") && Contains("follows the end"));
}

TEST_CASE("A newer format is refused and both versions are named", "[trace][file]") {
  Data file = file_of_entries({});
  file[8] = std::byte{2};
  REQUIRE_THROWS_WITH(parse_trace(file, "x"),
                      Contains("'x' is a trace of format 2, this berth reads format 1"));
}

TEST_CASE("What is no trace is refused by its beginning", "[trace][file]") {
  const auto parse = [](std::string_view text) {
    return parse_trace(std::as_bytes(std::span(text)), "x");
  };
  REQUIRE_THROWS_WITH(parse(""), "'x' is empty");
  REQUIRE_THROWS_WITH(parse("%PDF-1.4\x01\nabc"),
                      Contains("'x' is no trace") && Contains("begins with '%PDF-1.4?'"));
  REQUIRE_THROWS_WITH(parse("BERTHTRC"), Contains("no whole trace"));
  REQUIRE_THROWS_WITH(parse(std::string_view("BERTHTRC\x01\0\0\0", 12)),
                      Contains("no whole trace"));
  REQUIRE_THROWS_WITH(read_trace("/nowhere/a.trace"), Contains("/nowhere/a.trace"));
}

TEST_CASE("A chunk with a right checksum and wrong content is damage and named",
          "[trace][file][hostile]") {
  using trace::Event;
  const auto problem = [](const std::vector<Event>& events) {
    try {
      (void)parse_trace(file_of_entries(events), "x");
    } catch (const Error& e) {
      REQUIRE(e.kind() == ErrorKind::kInput);
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  CHECK_THAT(problem({trace::Request{1, 10, 5, 0}}), Contains("tick 0 names lane 5 of 1"));
  CHECK_THAT(problem({trace::Request{0, 10, 0, 0}}), Contains("requests block 0"));
  CHECK_THAT(problem({trace::Request{1, kMaxBytes + 1, 0, 0}}), Contains("the limit is"));
  CHECK_THAT(problem({trace::StepMark{1}}), Contains("names lane 1 of 1"));
  CHECK_THAT(problem({trace::Synchronize{0, 3}}), Contains("names lane 3 of 1"));
  CHECK_THAT(problem({trace::RangeBegin{1, 9, trace::RangeKind::kUser}}), Contains("text 9 of 1"));
  CHECK_THAT(problem({trace::RangeBegin{1, 0, trace::RangeKind(3)}}), Contains("unknown kind 3"));
  CHECK_THAT(problem({trace::Operand{.op = 1, .shape = 4}}), Contains("shape 4 of 1"));
  CHECK_THAT(problem({trace::Operand{.op = 1, .access = trace::Access(9)}}), Contains("kind 9"));
  CHECK_THAT(problem({trace::Role{1, trace::RoleKind(7)}}), Contains("unknown kind 7"));
  CHECK_THAT(problem({trace::Copy{trace::CopyDirection(4), 1, 1, 0}}), Contains("unknown kind 4"));
  CHECK_THAT(problem({trace::Request{1, 10, 0, 0}, trace::Request{1, 10, 0, 0}}),
             Contains("block 1 is requested at tick 1 though it was there before"));
  CHECK_THAT(problem({trace::Free{4}, trace::Request{4, 10, 0, 0}}), Contains("block 4"));
  CHECK_THAT(problem({trace::Free{4}, trace::Free{4}}),
             Contains("block 4 is freed again at tick 1"));
  CHECK_THAT(problem({trace::OperatorBegin{.op = 2}, trace::OperatorBegin{.op = 2}}),
             Contains("operator 2 begins at tick 1"));
  CHECK_THAT(problem({trace::OperatorEnd{2}, trace::OperatorEnd{2}}),
             Contains("operator 2 ends again"));
}

TEST_CASE("Two entries of one tick are damage", "[trace][file][hostile]") {
  const Data file = file_of([](trace_file::ChunkEncoder& encoder) {
    encoder.add({3, 0, 0, trace::StepMark{0}});
    encoder.add({3, 0, 1, trace::StepMark{0}});
  });
  REQUIRE_THROWS_WITH(parse_trace(file, "x"), Contains("two entries have tick 3"));
}

TEST_CASE("A start with an illegal alignment is damage", "[trace][file][hostile]") {
  const trace_file::FileHeader header = trace_file::make_file_header(7);
  Data file(header.begin(), header.end());
  trace_file::ChunkEncoder encoder;
  encoder.set_start({}, 48);
  trace_file::append_chunk(file, 7, 0, encoder.finish(true));
  REQUIRE_THROWS_WITH(parse_trace(file, "x"), Contains("alignment 48"));
}

TEST_CASE("A table whose counts exceed its bytes is damage", "[trace][file][hostile]") {
  // Every byte of the table is set to hostile values, and the checksum made right again.
  const Data good =
      file_of_entries({trace::Request{1, 100, 0, 0}, trace::Free{1}, trace::Use{1, 0}});
  const auto chunk = trace_file::parse_chunk(good, trace_file::kFileHeaderBytes);
  REQUIRE(chunk);
  std::size_t refused = 0, accepted = 0;
  for (std::size_t at = 0; at < chunk->payload.size(); ++at) {
    for (const int value : {0x00, 0x01, 0x7F, 0x80, 0xFF}) {
      Data payload(chunk->payload.begin(), chunk->payload.end());
      payload[at] = static_cast<std::byte>(value);
      Data file(good.begin(), good.begin() + trace_file::kFileHeaderBytes);
      trace_file::append_chunk(file, 7, 0, payload);
      try {
        const Trace trace = parse_trace(file, "x");
        for (const trace::Entry& entry : trace.entries) {
          if (const auto* request = std::get_if<trace::Request>(&entry.event))
            REQUIRE(request->lane < trace.lanes.size());
        }
        ++accepted;
      } catch (const Error& e) {
        REQUIRE(e.kind() == ErrorKind::kInput);
        ++refused;
      }
    }
  }
  REQUIRE(refused > 100);
  REQUIRE(accepted > 100);  // times, ids and the like may be anything
}

TEST_CASE("A trace may lie anywhere in memory", "[trace][file]") {
  const Trace before = test::random_trace(4, 300);
  const Data file = serialize_trace(before);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    Data moved(shift);
    moved.insert(moved.end(), file.begin(), file.end());
    REQUIRE(test::equal(before, parse_trace(std::span(moved).subspan(shift), "x")));
  }
}

TEST_CASE("Thousands of forged chunk headers do not cost their product", "[trace][file][hostile]") {
  Data file = file_of_entries({});
  const Data chunk(file.begin() + trace_file::kFileHeaderBytes, file.end());
  Data forged(chunk.begin(), chunk.begin() + trace_file::kChunkHeaderBytes);
  forged[5] = std::byte{0xFF};  // a length of 64 KiB and more
  forged[24] ^= std::byte{1};
  file.resize(trace_file::kFileHeaderBytes);
  for (int i = 0; i < 100000; ++i) file.insert(file.end(), forged.begin(), forged.end());
  // 3.2 MB: 100,000 checksums of 64 KiB would take seconds.
  REQUIRE_THROWS_WITH(parse_trace(file, "x"), Contains("damaged"));
}
