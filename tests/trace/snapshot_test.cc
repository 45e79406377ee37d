// Memory snapshots of PyTorch: real ones of torch 2.11 (bench/snapshots), the forms of other
// versions by their sources, and hostile ones.

#include "csrc/trace/snapshot.h"

#include "csrc/core/check.h"
#include "csrc/trace/file.h"
#include "csrc/trace/step.h"
#include "csrc/trace/write.h"
#include "tests/catch.h"
#include "tests/support/pickled.h"

#include <algorithm>

using namespace berth;
using namespace berth::test::pickled;
using Catch::Matchers::Contains;

namespace {

Snapshot parse(const std::string& data, std::optional<std::uint32_t> device = {}) {
  return parse_snapshot(std::as_bytes(std::span(data)), "x.pickle", device);
}

std::string refusal(const std::string& data, std::optional<std::uint32_t> device = {},
                    ErrorKind kind = ErrorKind::kInput) {
  try {
    (void)parse(data, device);
  } catch (const Error& error) {
    REQUIRE(error.kind() == kind);
    return error.what();
  }
  return "";
}

using Members = std::vector<std::pair<std::string, std::string>>;

std::string entry(const char* action, std::int64_t addr, std::int64_t size, std::int64_t time_us,
                  const Members& more = {}, std::int64_t stream = 0) {
  Members all = {{"action", text(action)},
                 {"addr", number(addr)},
                 {"size", number(size)},
                 {"stream", number(stream)},
                 {"time_us", number(time_us)}};
  all.insert(all.end(), more.begin(), more.end());
  return dict(all);
}

std::string block(std::int64_t size, const char* state, const Members& more = {}) {
  Members all = {{"size", number(size)}, {"requested_size", number(size)}, {"state", text(state)}};
  all.insert(all.end(), more.begin(), more.end());
  return dict(all);
}

std::string segment(std::int64_t address, std::int64_t size, const std::vector<std::string>& blocks,
                    const Members& more = {}) {
  Members all = {{"device", number(0)},           {"address", number(address)},
                 {"total_size", number(size)},    {"stream", number(0)},
                 {"segment_type", text("large")}, {"blocks", list(blocks)}};
  all.insert(all.end(), more.begin(), more.end());
  return dict(all);
}

std::string whole(const std::vector<std::string>& segments,
                  const std::vector<std::vector<std::string>>& traces, const Members& more = {}) {
  std::vector<std::string> histories;
  for (const auto& trace : traces) histories.push_back(list(trace));
  Members all = {{"segments", list(segments)}, {"device_traces", list(histories)}};
  all.insert(all.end(), more.begin(), more.end());
  return file(dict(all));
}

// "request 100, free": the entries that change what lives, by the ids of their blocks.
std::vector<std::pair<char, std::uint64_t>> changes(const Trace& trace) {
  std::vector<std::pair<char, std::uint64_t>> all;
  for (const trace::Entry& one : trace.entries) {
    if (const auto* request = std::get_if<trace::Request>(&one.event))
      all.emplace_back('+', request->bytes);
    if (std::holds_alternative<trace::Free>(one.event)) all.emplace_back('-', 0);
    if (std::holds_alternative<trace::StepMark>(one.event)) all.emplace_back('|', 0);
  }
  return all;
}

Bytes live_peak(const Trace& trace) {
  std::unordered_map<trace::BlockId, Bytes> sizes;
  Bytes live = 0, peak = 0;
  for (const trace::Entry& one : trace.entries) {
    if (const auto* request = std::get_if<trace::Request>(&one.event)) {
      live += sizes[request->id] = (request->bytes + 511) / 512 * 512;
      peak = std::max(peak, live);
    } else if (const auto* free = std::get_if<trace::Free>(&one.event)) {
      live -= sizes.at(free->id);
    }
  }
  return peak;
}

}  // namespace

#ifdef BERTH_TEST_ZLIB

TEST_CASE("A snapshot that torch 2.11 wrote says what its allocator counted itself",
          "[trace][snapshot]") {
  struct Case {
    const char* name;
    std::size_t requests, lanes, marks;
    Bytes reserved_peak, reserved, allocated_peak;
    bool expandable;
  };
  // What bench/snapshots/make.py printed.
  for (const Case& c : {Case{"python", 159, 2, 6, 58720256, 54525952, 32785408, false},
                        Case{"cpp", 153, 1, 6, 56623104, 56623104, 32785408, false},
                        Case{"expandable", 153, 1, 6, 56623104, 56623104, 32785408, true}}) {
    CAPTURE(c.name);
    const Snapshot snapshot =
        read_snapshot(std::string(BERTH_SNAPSHOTS "/") + c.name + ".pickle.gz");
    REQUIRE(snapshot.requests == c.requests);
    REQUIRE(snapshot.trace.lanes.size() == c.lanes);
    REQUIRE(snapshot.marks == c.marks);
    REQUIRE(snapshot.reserved_peak == c.reserved_peak);
    REQUIRE(snapshot.reserved_at_end == c.reserved);
    REQUIRE(snapshot.expandable == c.expandable);
    REQUIRE(live_peak(snapshot.trace) == c.allocated_peak);
    REQUIRE_FALSE(snapshot.cut());
    REQUIRE(snapshot.lost_frees + snapshot.missing_frees + snapshot.unknown_entries == 0);
    const auto step = extract_step(snapshot.trace);
    REQUIRE(step);
    REQUIRE(step->repeats == c.marks - 1);
    REQUIRE(parse_trace(serialize_trace(snapshot.trace), "again").entries.size() ==
            snapshot.trace.entries.size());
  }
}

TEST_CASE("Stacks of a snapshot say which line of the program asked, and for which operator",
          "[trace][snapshot]") {
  const Snapshot snapshot = read_snapshot(BERTH_SNAPSHOTS "/python.pickle.gz");
  const auto has = [&](const std::string& text) {
    return std::any_of(snapshot.trace.strings.begin(), snapshot.trace.strings.end(),
                       [&](const std::string& one) { return one.find(text) != one.npos; });
  };
  REQUIRE(has("main make.py:"));
  REQUIRE(has("forward torch/nn/modules/linear.py"));
  REQUIRE(has("optimizer"));
  REQUIRE(snapshot.out_of_memory == 1);
  REQUIRE(snapshot.refused == Bytes{1} << 45);
}

TEST_CASE("A history that is cut keeps what was there before, and says what is not known",
          "[trace][snapshot]") {
  for (const char* name : {"cut", "late"}) {
    const Snapshot snapshot = read_snapshot(std::string(BERTH_SNAPSHOTS "/") + name + ".pickle.gz");
    REQUIRE(snapshot.cut());
    REQUIRE(snapshot.old_blocks == 21);
    REQUIRE(snapshot.reserved_at_start > snapshot.old_bytes);
    REQUIRE(live_peak(snapshot.trace) == 32785408);
    REQUIRE_THAT(snapshot.notes().at(0), Contains("peaks before it are not known"));
    REQUIRE(std::count(snapshot.trace.strings.begin(), snapshot.trace.strings.end(),
                       kBeforeHistory) == 1);
  }
}

TEST_CASE("A packed pickle is known by its content", "[trace][snapshot]") {
  const FileHead packed = read_file_beginning(BERTH_SNAPSHOTS "/cpp.pickle.gz", 16);
  REQUIRE(packed.packed);
  REQUIRE(is_pickle(packed.bytes));
  REQUIRE_FALSE(is_pickle(read_file_beginning(BERTH_SNAPSHOTS "/make.py", 16).bytes));
}

#endif

TEST_CASE("A block is freed where its free completed, and lives till then", "[trace][snapshot]") {
  const Snapshot snapshot = parse(
      whole({segment(4096, 2097152, {block(2097152, "inactive")})},
            {{entry("segment_alloc", 4096, 2097152, 1), entry("alloc", 4096, 100, 2),
              entry("free_requested", 4096, 100, 3), entry("alloc", 8192, 200, 4, {}, 77),
              entry("free_completed", 4096, 100, 5), entry("free_requested", 8192, 200, 6, {}, 77),
              entry("free_completed", 8192, 200, 6, {}, 77)}}));
  REQUIRE(changes(snapshot.trace) ==
          std::vector<std::pair<char, std::uint64_t>>{{'+', 100}, {'+', 200}, {'-', 0}, {'-', 0}});
  REQUIRE(snapshot.delayed_frees == 1);
  REQUIRE(snapshot.frees == 2);
  REQUIRE(snapshot.trace.lanes.size() == 2);
  REQUIRE(snapshot.trace.lanes[1].key == 1);
  REQUIRE_FALSE(snapshot.cut());
  REQUIRE(snapshot.trace.entries.back().time_ns == 5000);
}

TEST_CASE("Where completed frees are not recorded, requested ones count", "[trace][snapshot]") {
  const Snapshot snapshot =
      parse(whole({}, {{entry("alloc", 4096, 100, 2), entry("free_requested", 4096, 100, 3)}}));
  REQUIRE(snapshot.frees == 1);
  REQUIRE(snapshot.missing_frees == 0);
  const Snapshot none =
      parse(whole({}, {{entry("alloc", 4096, 100, 2), entry("alloc", 4096, 100, 3),
                        entry("alloc", 8192, 100, 3)}}));
  REQUIRE(none.lost_frees == 1);
  REQUIRE(none.missing_frees == 2);
  REQUIRE(none.notes().size() == 2);
}

TEST_CASE("Blocks from before the history come first, whether they are freed or stay",
          "[trace][snapshot]") {
  const Snapshot snapshot =
      parse(whole({segment(4096, 20971520,
                           {block(1024, "active_allocated"), block(512, "inactive"),
                            block(2048, "active_allocated")}),
                   segment(65536, 2097152, {block(2097152, "active_awaiting_free")})},
                  {{entry("free_requested", 5120, 300, 3), entry("free_completed", 5120, 300, 3),
                    entry("segment_free", 1 << 20, 4194304, 3), entry("alloc", 5632, 2000, 4)}}));
  // 1024 stays, 300 is freed, 2048 at 5632 is the request of 2000.
  REQUIRE(changes(snapshot.trace) == std::vector<std::pair<char, std::uint64_t>>{
                                         {'+', 1024}, {'+', 300}, {'-', 0}, {'+', 2000}});
  REQUIRE(snapshot.old_blocks == 2);
  REQUIRE(snapshot.old_freed == 1);
  REQUIRE(snapshot.old_bytes == 1324);
  REQUIRE(snapshot.reserved_at_end == 23068672);
  REQUIRE(snapshot.reserved_at_start == 23068672 + 4194304);
  REQUIRE(snapshot.reserved_peak == snapshot.reserved_at_start);
}

TEST_CASE("Each Optimizer.step that is annotated ends a step", "[trace][snapshot]") {
  const auto annotation = [](const char* name, const char* stage, std::int64_t time_us,
                             std::int64_t device = 0) {
    return dict({{"name", text(name)},
                 {"stage", text(stage)},
                 {"device", number(device)},
                 {"time_us", number(time_us)}});
  };
  const Snapshot snapshot = parse(whole(
      {},
      {{entry("alloc", 4096, 100, 10), entry("alloc", 8192, 200, 20),
        entry("alloc", 12288, 300, 30)}},
      {{"external_annotations",
        list({annotation("Optimizer.step#SGD.step", "END", 5),  // before the history
              annotation("forward", "START", 6), annotation("Optimizer.step#SGD.step", "START", 11),
              annotation("Optimizer.step#SGD.step", "END", 15),
              annotation("Optimizer.step#SGD.step", "END", 15, 1),
              annotation("Optimizer.step#SGD.step", "END", 40)})}}));
  REQUIRE(snapshot.marks == 2);
  REQUIRE(changes(snapshot.trace) == std::vector<std::pair<char, std::uint64_t>>{
                                         {'+', 100}, {'|', 0}, {'+', 200}, {'+', 300}, {'|', 0}});
}

TEST_CASE("Snapshots of torch 2.4 to 2.15 are read, whatever fields they have",
          "[trace][snapshot]") {
  const auto frames = [](const char* name, const char* filename) {
    return list({dict({{"name", text("at::_ops::add_Tensor::call(at::Tensor const&)")},
                       {"filename", text("??")},
                       {"line", number(0)}}),
                 dict({{"name", text(name)},
                       {"filename", text(filename)},
                       {"line", number(7)},
                       {"fx_node_op", text("call_function")}})});
  };
  const Members pool = {{"segment_pool_id", tuple({number(0), number(0)})},
                        {"is_expandable", boolean(false)},
                        {"allocated_size", number(512)},
                        {"active_size", number(512)},
                        {"requested_size", number(100)},
                        {"frames", list({})}};
  // 2.4: no annotations, no address in blocks is missing, no context of compilation.
  const std::string torch_2_4 = whole(
      {segment(4096, 2097152, {block(512, "active_allocated", {{"address", number(4096)}})}, pool)},
      {{entry("segment_alloc", 4096, 2097152, 1), entry("alloc", 4096, 100, 2),
        dict({{"action", text("snapshot")},
              {"addr", number(0)},
              {"size", number(0)},
              {"stream", number(0)},
              {"time_us", number(3)}})}},
      {{"allocator_settings", dict({{"PYTORCH_CUDA_ALLOC_CONF", text("expandable_segments:False")},
                                    {"max_split_size", number(-1)}})}});
  // 2.7 to 2.11: compile_context, user_metadata, annotations.
  const Members named = {{"compile_context", text("N/A")},
                         {"user_metadata", text("weights")},
                         {"frames", frames("build", "/home/me/model.py")}};
  const std::string torch_2_8 =
      whole({segment(4096, 2097152, {block(512, "active_allocated")}, pool)},
            {{entry("segment_map", 4096, 2097152, 1, {{"compile_context", text("N/A")}}),
              entry("alloc", 4096, 100, 2, named)}},
            {{"external_annotations", list({})}, {"allocator_settings", dict({})}});
  // 2.15: pools in entries, memory of the host, annotate, and settings under the new name.
  Members private_pool = pool;
  private_pool[0].second = tuple({number(0), number(3)});
  const std::string torch_2_15 = whole(
      {segment(4096, 2097152, {block(512, "active_allocated")}, private_pool)},
      {{entry("segment_alloc", 4096, 2097152, 1, {{"pool_id", tuple({number(0), number(3)})}}),
        entry("alloc", 4096, 100, 2, named), entry("annotate", 4096, 100, 3),
        entry("something_new", 4096, 100, 3)}},
      {{"external_annotations", list({})},
       {"host_segments", list({})},
       {"host_traces", list({})},
       {"allocator_settings", dict({{"PYTORCH_ALLOC_CONF", text("a:b")}})}});
  for (const std::string* data : {&torch_2_4, &torch_2_8, &torch_2_15}) {
    const Snapshot snapshot = parse(*data);
    REQUIRE(snapshot.requests == 1);
    REQUIRE(snapshot.reserved_at_end == 2097152);
    REQUIRE(snapshot.reserved_at_start == 0);
    REQUIRE(snapshot.old_blocks == 0);
    REQUIRE(snapshot.unknown_entries == (data == &torch_2_15 ? 1 : 0));
    REQUIRE(snapshot.private_bytes == (data == &torch_2_15 ? 2097152 : 0));
    const auto& texts = snapshot.trace.strings;
    if (data == &torch_2_4) continue;
    REQUIRE(std::count(texts.begin(), texts.end(), "aten::add") == 1);
    REQUIRE(std::count(texts.begin(), texts.end(), "build model.py:7") == 1);
    REQUIRE(std::count(texts.begin(), texts.end(), "weights") == 1);
  }
  REQUIRE(parse(torch_2_4).settings == "expandable_segments:False");
  REQUIRE(parse(torch_2_15).settings == "a:b");
}

TEST_CASE("A snapshot that was written under berth is told by small blocks in large segments",
          "[trace][snapshot]") {
  const auto with = [](bool expandable, const char* state, std::int64_t size) {
    return parse(whole(
        {segment(4096, 4194304, {block(size, state)}, {{"is_expandable", boolean(expandable)}})},
        {{entry("segment_map", 4096, 4194304, 1), entry("alloc", 4096, size, 2)}}));
  };
  const Snapshot ours = with(true, "active_allocated", 1 << 20);
  REQUIRE(ours.of_berth);
  REQUIRE_FALSE(ours.expandable);
  REQUIRE(ours.reserved_peak == 4194304);
  REQUIRE(std::none_of(ours.trace.entries.begin(), ours.trace.entries.end(), [](const auto& one) {
    return std::holds_alternative<trace::Segment>(one.event);
  }));
  REQUIRE_FALSE(with(true, "active_allocated", (1 << 20) + 512).of_berth);
  REQUIRE(with(true, "active_allocated", (1 << 20) + 512).expandable);
  REQUIRE_FALSE(with(true, "inactive", 512).of_berth);
  REQUIRE_FALSE(with(false, "active_allocated", 512).of_berth);
}

TEST_CASE("Of several devices with a history one is to be named", "[trace][snapshot]") {
  const std::string two = whole({}, {{entry("alloc", 4096, 100, 2)},
                                     {},
                                     {entry("alloc", 4096, 300, 2), entry("alloc", 8192, 300, 2)}});
  REQUIRE_THAT(refusal(two, {}, ErrorKind::kUsage),
               Contains("several devices: 0 (1 requests), 2 (2 requests); --device"));
  REQUIRE(parse(two, 2).requests == 2);
  REQUIRE_THAT(refusal(two, 1, ErrorKind::kUsage), Contains("no history of device 1"));
  REQUIRE(parse(whole({}, {{}, {entry("alloc", 4096, 100, 2)}})).device == 1);
}

TEST_CASE("A pickle that is no memory snapshot is refused with what it lacks",
          "[trace][snapshot]") {
  const std::string one = segment(4096, 2097152, {});
  REQUIRE_THAT(refusal(file(number(3))), Contains("it holds no dictionary"));
  REQUIRE_THAT(refusal(file(dict({}))), Contains("it has no 'segments'"));
  REQUIRE_THAT(refusal(file(dict({{"segments", list({})}}))), Contains("no 'device_traces'"));
  REQUIRE_THAT(refusal(file(list({one}))), Contains("_record_memory_history"));
  REQUIRE_THAT(refusal(whole({one}, {{}})), Contains("it has no history of requests"));
  REQUIRE_THAT(refusal(whole({one}, {{entry("free_requested", 1, 1, 1)}})), Contains("no history"));
  REQUIRE_THAT(
      refusal(whole({one}, {{entry("free_completed", 1, 1, 1)}})),
      Contains("are frees, 1 entries. The ring was too short") && Contains("max_entries="));
  REQUIRE_THAT(refusal(whole({}, {{entry("alloc", 1, 1, 1), number(5)}})),
               Contains("entry 1 of device 0 has no 'action'"));
  REQUIRE_THAT(refusal(whole({}, {{entry("alloc", 1, -1, 1)}})), Contains("no 'size' up to"));
  REQUIRE_THAT(
      refusal(whole({segment(0, 1, {}, {{"device", number(-1)}})}, {{entry("alloc", 1, 1, 1)}})),
      Contains("a segment is of device -1"));
  // Where a list is wanted and something else comes, nothing is read out of it.
  REQUIRE_THAT(refusal(file(dict({{"segments", number(1)}, {"device_traces", list({number(1)})}}))),
               Contains("the history of device 0 is no list"));
  REQUIRE(parse(file(dict({{"segments", text("none")},
                           {"external_annotations", number(9)},
                           {"allocator_settings", list({})},
                           {"device_traces", list({list({entry("alloc", 1, 1, 1)})})}})))
              .requests == 1);
}
