#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/trace/file.h"
#include "csrc/trace/gzip.h"
#include "tests/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_files.h"
#include "tests/trace/equal_traces.h"
#include "tests/trace/random_trace.h"

using namespace berth;
using Catch::Matchers::Contains;
using test::TemporaryFolder;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::optional<TraceForm> form_of_file(const std::string& path) {
  return trace_form(read_file_beginning(path, kTraceHeadBytes).bytes);
}

Trace parse(std::string_view text) { return parse_trace(bytes_of(text), "x.csv"); }

std::string problem_of(std::string_view text) {
  try {
    (void)parse(text);
  } catch (const Error& e) {
    REQUIRE(e.kind() == ErrorKind::kInput);
    return e.what();
  }
  return "accepted";
}

std::string events(std::string_view rows) { return "action,id,bytes,stream\n" + std::string(rows); }
std::string lifetimes(std::string_view rows) { return "id,lower,upper,size\n" + std::string(rows); }

template <class Kind>
std::size_t count(const Trace& trace) {
  std::size_t n = 0;
  for (const trace::Entry& e : trace.entries) n += std::holds_alternative<Kind>(e.event) ? 1 : 0;
  return n;
}

}  // namespace

TEST_CASE("Events become requests and frees and marks in their order", "[trace][csv]") {
  const Trace t =
      parse(events("alloc,0,100,0\nalloc,1,200,7\nfree,0,,\nstep,,,\nfree_old,,512,0\n"));
  REQUIRE(t.lanes.size() == 2);
  REQUIRE(t.lanes[1].key == 7);
  REQUIRE(t.alignment == 512);
  REQUIRE(t.entries.size() == 5);
  const auto& request = std::get<trace::Request>(t.entries[1].event);
  REQUIRE(request.id == 2);
  REQUIRE(request.bytes == 200);
  REQUIRE(request.lane == 1);
  REQUIRE(std::get<trace::Free>(t.entries[2].event).id == 1);
  // The mark belongs to the stream used last.
  REQUIRE(std::get<trace::StepMark>(t.entries[3].event).lane == 1);
  REQUIRE(std::get<trace::Free>(t.entries[4].event).id > 2);
}

TEST_CASE("A recorded run in events form has the requests it is known for", "[trace][csv]") {
  const Trace t = read_trace(BERTH_TEST_DATA "/vgg16.csv.gz");
  REQUIRE(form_of_file(BERTH_TEST_DATA "/vgg16.csv.gz") == TraceForm::kEvents);
  REQUIRE(count<trace::Request>(t) == 606);
  REQUIRE(count<trace::Free>(t) == 572);
  REQUIRE(count<trace::StepMark>(t) == 4);
}

TEST_CASE("Lines may end in CR LF and blank lines may follow the last", "[trace][csv]") {
  REQUIRE(parse("action,id,bytes,stream\r\nalloc,0,100,0\r\nfree,0,,\r\n\r\n\n").entries.size() ==
          2);
  REQUIRE(parse("\xEF\xBB\xBF" + events("alloc,0,1,0")).entries.size() == 1);
  REQUIRE(parse(events("")).entries.empty());
}

TEST_CASE("Every bad line of events is named with its number", "[trace][csv][hostile]") {
  CHECK_THAT(problem_of(events("alloc,0,100\n")), Contains("'x.csv' line 2 has 3 fields, not 4"));
  CHECK_THAT(problem_of(events("alloc,0,1,0\n\nfree,0,,\n")), Contains("line 3 is empty"));
  CHECK_THAT(problem_of(events("malloc,0,1,0\n")), Contains("the action 'malloc'"));
  CHECK_THAT(problem_of(events("alloc,x,1,0\n")), Contains("id 'x', which is no whole number"));
  CHECK_THAT(problem_of(events("alloc,-1,1,0\n")), Contains("id '-1'"));
  CHECK_THAT(problem_of(events("alloc,1,1.5,0\n")), Contains("bytes '1.5'"));
  CHECK_THAT(problem_of(events("alloc,1,1e9,0\n")), Contains("bytes '1e9'"));
  CHECK_THAT(problem_of(events("alloc,1, 1,0\n")), Contains("bytes ' 1'"));
  CHECK_THAT(problem_of(events("alloc,1,99999999999999999999,0\n")),
             Contains("bytes 99999999999999999999, the limit is 4611686018427387904"));
  CHECK_THAT(problem_of(events("alloc,1,4611686018427387905,0\n")), Contains("the limit is"));
  CHECK_THAT(problem_of(events("alloc,18446744073709551615,1,0\n")), Contains("id 1844"));
  CHECK_THAT(problem_of(events("alloc,1,1,\n")), Contains("stream ''"));
  CHECK_THAT(problem_of(events("alloc,1,1,0\nalloc,1,1,0\n")),
             Contains("line 3 requests block 1 again, line 2 did"));
  CHECK_THAT(problem_of(events("free,5,,\n")),
             Contains("line 2 frees block 5, which no line before"));
  CHECK_THAT(problem_of(events("alloc,1,1,0\nfree,1,,\nfree,1,,\n")),
             Contains("line 4 frees block 1 again, line 3 did"));
  CHECK_THAT(problem_of(events("alloc,1,1,0\nfree_old,1,,\n")), Contains("line 2 requests it"));
  CHECK_THAT(problem_of(events("free_old,1,,\nalloc,1,1,0\n")), Contains("line 2 freed as an old"));
  CHECK_THAT(problem_of(events("alloc,1,1,0,0,0,0,0,0\n")), Contains("more than 8 fields"));
  CHECK_THAT(problem_of("action,id,bytes,stream,pool\n"), Contains("line 1"));
  CHECK_THAT(problem_of(events(std::string("alloc,1,\0,0\n", 12))), Contains("bytes '?'"));
  CHECK_THAT(problem_of(events("alloc,1," + std::string(1000, '7') + ",0\n")),
             Contains("..., the"));
}

TEST_CASE("Events written from a trace read back as the same requests", "[trace][csv]") {
  const std::uint64_t seed = GENERATE(1, 2, 3);
  CAPTURE(seed);
  Trace before = test::random_trace(seed, 2000);
  std::erase_if(before.entries, [](const trace::Entry& e) {
    return !std::holds_alternative<trace::Request>(e.event) &&
           !std::holds_alternative<trace::Free>(e.event) &&
           !std::holds_alternative<trace::StepMark>(e.event);
  });
  // Blocks from before the recording.
  before.entries.push_back({100000, 0, 0, trace::Free{99999}});
  const TemporaryFolder folder;
  const std::string path = folder / GENERATE("a.csv", "a.csv.gz");
  test::write_events_csv(path, before);
  const Trace after = read_trace(path);
  REQUIRE(after.entries.size() == before.entries.size());
  for (std::size_t i = 0; i < after.entries.size(); ++i) {
    CAPTURE(i);
    const trace::Event& a = before.entries[i].event;
    const trace::Event& b = after.entries[i].event;
    REQUIRE(a.index() == b.index());
    if (const auto* request = std::get_if<trace::Request>(&a)) {
      const auto& other = std::get<trace::Request>(b);
      REQUIRE(request->id == other.id);
      REQUIRE(request->bytes == other.bytes);
      REQUIRE(before.lanes[request->lane].key == after.lanes[other.lane].key);
    } else if (const auto* free = std::get_if<trace::Free>(&a)) {
      REQUIRE(free->id == std::get<trace::Free>(b).id);
    } else {
      REQUIRE(before.lanes[std::get<trace::StepMark>(a).lane].key ==
              after.lanes[std::get<trace::StepMark>(b).lane].key);
    }
  }
}

TEST_CASE("At one time lifetimes end before others begin", "[trace][csv]") {
  const Trace t = parse(lifetimes("a,0,5,10\nb,5,9,20\nc,2,5,30\n"));
  REQUIRE(t.alignment == 1);
  std::vector<std::string> order;
  for (const trace::Entry& e : t.entries) {
    const auto* request = std::get_if<trace::Request>(&e.event);
    order.push_back(request != nullptr ? fmt::format("+{}", request->id)
                                       : fmt::format("-{}", std::get<trace::Free>(e.event).id));
  }
  REQUIRE(order == std::vector<std::string>{"+1", "+3", "-1", "-3", "+2", "-2"});
}

TEST_CASE("Lifetimes keep their rows and order and are written with offsets", "[trace][csv]") {
  const TemporaryFolder folder;
  const std::string path = folder / GENERATE("a.csv", "a.csv.gz");
  const std::vector<Lifetime> rows = {{"b1", 3, 9, 100}, {"0", 0, 4, 7}};
  write_lifetimes(path, rows, std::vector<Bytes>{0, 128});
  REQUIRE(read_lifetimes(path) == rows);
  REQUIRE(form_of_file(path) == TraceForm::kLifetimes);
  if (path.ends_with(".csv")) {
    const auto data = read_file(path, 1000);
    REQUIRE(std::string(reinterpret_cast<const char*>(data.data()), data.size()) ==
            "id,lower,upper,size,offset\nb1,3,9,100,0\n0,0,4,7,128\n");
  }
  REQUIRE_THROWS_WITH(write_lifetimes(path, rows, std::vector<Bytes>{0}),
                      Contains("2 lifetimes have 1 offsets"));
}

TEST_CASE("Every bad line of lifetimes is named with its number", "[trace][csv][hostile]") {
  CHECK_THAT(problem_of(lifetimes("a,0,5\n")), Contains("line 2 has 3 fields, not 4"));
  CHECK_THAT(problem_of(lifetimes("a,0,5,1,0\n")), Contains("line 2 has 5 fields, not 4"));
  CHECK_THAT(problem_of(lifetimes(",0,5,1\n")), Contains("line 2 has no id"));
  CHECK_THAT(problem_of(lifetimes("a,0,5,0\n")), Contains("line 2 has size 0"));
  CHECK_THAT(problem_of(lifetimes("a,5,5,1\n")), Contains("[5, 5), which is empty"));
  CHECK_THAT(problem_of(lifetimes("a,6,5,1\n")), Contains("[6, 5), which is reversed"));
  CHECK_THAT(problem_of(lifetimes("a,0,5,1\na,0,5,1\n")),
             Contains("line 3 has the id 'a' again, line 2"));
  CHECK_THAT(problem_of(lifetimes("a,-3,5,1\n")), Contains("lower '-3'"));
  CHECK_THAT(problem_of(lifetimes("a,0,9223372036854775808,1\n")), Contains("upper"));
  CHECK_THAT(problem_of(lifetimes("a,0,5,4611686018427387905\n")), Contains("size"));
  CHECK_THAT(problem_of(lifetimes("a,0,5,4611686018427387904\nb,0,5,1\n")),
             Contains("line 3 brings the sum of sizes above the limit"));
  CHECK_THAT(problem_of("id,lower,upper,size,alignment\na,0,5,1,8\n"), Contains("line 1"));
  REQUIRE_THROWS_WITH(parse_lifetimes(bytes_of(events("")), "x"), Contains("has no lifetimes"));
}

#ifdef BERTH_TEST_ZLIB
TEST_CASE("Packed data unpacks to what it was over several members", "[trace][gzip]") {
  const TemporaryFolder folder;
  write_gzip(folder / "first", bytes_of(lifetimes("a,0,5,10\n")));
  write_gzip(folder / "second", bytes_of("b,0,5,10\n"));
  std::vector<std::byte> packed = read_file(folder / "first", kMaxBytes);
  const std::vector<std::byte> more = read_file(folder / "second", kMaxBytes);
  packed.insert(packed.end(), more.begin(), more.end());
  REQUIRE(is_gzip(packed));
  write_file_atomically(folder / "both", packed);
  REQUIRE(form_of_file(folder / "both") == TraceForm::kLifetimes);
  REQUIRE(read_lifetimes(folder / "both").size() == 2);
}

TEST_CASE("Packed data cut or flipped anywhere is refused", "[trace][gzip][hostile]") {
  const TemporaryFolder folder;
  std::string text = lifetimes("");
  for (int i = 0; i < 50; ++i) text += fmt::format("{},0,5,10\n", i * 7919);
  write_gzip(folder / "x", bytes_of(text));
  const std::vector<std::byte> packed = read_file(folder / "x", kMaxBytes);
  for (std::size_t size = 2; size < packed.size(); ++size) {
    CAPTURE(size);
    write_file_atomically(folder / "cut", std::span(packed).first(size));
    REQUIRE_THROWS_AS(read_lifetimes(folder / "cut"), Error);
  }
  std::size_t accepted = 0;
  for (std::size_t at = 10; at < packed.size(); ++at) {  // after the header, which may say anything
    std::vector<std::byte> damaged = packed;
    damaged[at] ^= std::byte{4};
    write_file_atomically(folder / "damaged", damaged);
    try {
      (void)read_lifetimes(folder / "damaged");
      ++accepted;
    } catch (const Error&) {
    }
  }
  REQUIRE(accepted == 0);
}

TEST_CASE("Packed data that unpacks to more than the limit is refused", "[trace][gzip][hostile]") {
  const TemporaryFolder folder;
  const std::string bomb = folder / "bomb.gz";
  write_gzip(bomb, std::vector<std::byte>(8 << 20));
  REQUIRE(read_file(bomb, kMaxBytes).size() < 20000);
  REQUIRE(gunzip(bomb, 8 << 20).size() == 8 << 20);
  REQUIRE_THROWS_WITH(gunzip(bomb, (8 << 20) - 1),
                      Contains("bomb.gz' unpacks to more than the limit of 8.0 MiB"));
}
#endif
