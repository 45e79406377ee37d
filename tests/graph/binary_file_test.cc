// Schedules and graphs as binary files.
#include "csrc/core/checksum.h"
#include "csrc/core/file.h"
#include "csrc/graph/file.h"
#include "csrc/graph/generated/schedule_generated.h"
#include "csrc/graph/graph_file.h"
#include "csrc/graph/schedule_file.h"
#include "csrc/plan/file.h"
#include "csrc/plan/section_table.h"
#include "tests/catch.h"
#include "tests/support/random_graph.h"
#include "tests/support/random_schedule.h"
#include "tests/support/temporary_folder.h"

#include <berth/error.h>

#include <cstring>
#include <functional>
#include <random>

using namespace berth;
using namespace berth::graph;
using namespace berth::test;
using Catch::Matchers::Contains;

namespace {

using File = std::vector<std::byte>;

constexpr const char* kGoldenGraph = R"({"format": "berth-graph 1",
  "storages": [{"bytes": 64, "class": "resident", "role": "parameter"}, {"bytes": 128, "class": "input", "role": "input"},
               {"bytes": 128, "class": "step", "role": "activation"}],
  "operators": [
    {"name": "g", "phase": "backward", "traits": ["random", "collective"], "forward": 1, "alternatives": [
      {"ns": 5, "workspace": 0, "reads": [[2, 1, 32, 64]], "writes": [[0, 1]]}]},
    {"name": "f", "phase": "forward", "traits": ["changes_state", "host_sync"], "alternatives": [
      {"ns": 10, "workspace": 512, "reads": [[0, 0, 0, 64], [1, 0, 0, 128]], "writes": [[2, 1]]},
      {"ns": 20, "workspace": 0, "reads": [[0, 0, 0, 64], [1, 0, 0, 128]], "writes": [[2, 1]], "in_place": [[[1, 0], [2, 1]]]}]}],
  "control": [[1, 0]], "order": [1, 0]})";

// The error of a reader, which is of the input; "" where there is none.
std::string refusal(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    REQUIRE(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return {};
}
std::string refusal_of_schedule(const File& file) {
  return refusal([&] { (void)parse_schedule(file, "x"); });
}
std::string refusal_of_graph(const File& file) {
  return refusal([&] { (void)parse_graph_file(file, "x"); });
}

// With a checksum that is right, so that what is wrong inside is found by what looks inside.
File repaired(File file) {
  const std::size_t end = file.size() - 8;
  const std::uint64_t right = checksum(std::span(file).first(end));
  std::memcpy(file.data() + end, &right, sizeof right);
  return file;
}

Graph some_graph(std::mt19937& random) { return random_graph(random, 1 + random() % 10); }

// A graph and a schedule of it that has all there is to write.
std::pair<Graph, Schedule> some_schedule(std::mt19937& random) {
  while (true) {
    const Graph graph = some_graph(random);
    auto schedule = RandomSchedule(random, graph, true).make(random() % 2 == 0);
    if (!schedule) continue;
    schedule->budget = random();
    schedule->engine = "retain";
    schedule->seed = random();
    schedule->peak = random();
    schedule->peak_bound = random();
    schedule->ns = random();
    schedule->ns_bound = random();
    if (random() % 2 == 0) schedule->operators = identities_of(graph);
    return {graph, *schedule};
  }
}

void refuse_cut_and_flipped(const File& file,
                            const std::function<std::string(const File&)>& refused) {
  REQUIRE(refused(file) == "");
  for (std::size_t size = 0; size < file.size(); ++size)
    if (refused(File(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size))) == "")
      FAIL("cut at " << size);
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    File bad = file;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    if (refused(bad) == "") FAIL("bit " << bit);
  }
}

// A schedule's file whose table is made by hand.
File schedule_file_of(const std::function<void(flatbuffers::FlatBufferBuilder&)>& make) {
  flatbuffers::FlatBufferBuilder builder;
  make(builder);
  return write_sections({{SectionType::kSchedule, true, table_content(builder)}});
}

// One of each kind of step; the graph has one of each thing that a graph may hold.
Schedule golden_schedule() {
  using Kind = ScheduleStep::Kind;
  Schedule schedule;
  schedule.buffers = {{0, {}}, {1, {0, 64}}, {2, {Buffer::kNoOffset}}};
  schedule.steps.resize(5);
  schedule.steps[0].op = 1;
  schedule.steps[0].alternative = 1;
  schedule.steps[0].reads = {0, 1};
  schedule.steps[0].writes = {2};
  schedule.steps[0].workspace_offset = 128;
  schedule.steps[1].kind = Kind::kOffload;
  schedule.steps[2].kind = Kind::kReload;
  schedule.steps[3].kind = Kind::kDrop;
  for (std::size_t k = 1; k < 4; ++k) schedule.steps[k].buffer = 1;
  schedule.steps[4].reads = {2};
  schedule.arena_bytes = 192;
  schedule.budget = 1000;
  schedule.engine = "retain";
  schedule.seed = 7;
  schedule.graph_hash = hash_of(parse_graph(kGoldenGraph, "golden"));
  schedule.peak = 900;
  schedule.peak_bound = 800;
  schedule.ns = 70;
  schedule.ns_bound = 60;
  return schedule;
}

}  // namespace

TEST_CASE("The golden files of format 1 are read and written to the byte", "[graph][file]") {
  const std::string folder = BERTH_TEST_DATA;
  const Graph graph = parse_graph(kGoldenGraph, "golden");
  CHECK(read_graph(folder + "/format1.graph") == graph);
  CHECK(read_file(folder + "/format1.graph", 10'000) == serialize_graph(graph));
  CHECK(read_schedule(folder + "/format1.schedule") == golden_schedule());
  CHECK(read_file(folder + "/format1.schedule", 10'000) == serialize_schedule(golden_schedule()));
}

TEST_CASE("A schedule is read back from its file as it was written", "[graph][file]") {
  std::mt19937 random(21);
  const TemporaryFolder folder;
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    const auto [graph, schedule] = some_schedule(random);
    const File file = serialize_schedule(schedule);
    REQUIRE(parse_schedule(file, "x") == schedule);
    REQUIRE(serialize_schedule(parse_schedule(file, "x")) == file);
    write_schedule(folder / "x.schedule", schedule);
    REQUIRE(read_file(folder / "x.schedule", 1 << 20) == file);
    REQUIRE(read_schedule(folder / "x.schedule") == schedule);
  }
  CHECK(parse_schedule(serialize_schedule({}), "empty") == Schedule{});
}

TEST_CASE("Names of operators that are nobody's, or not there, are malformed", "[graph][file]") {
  const auto file_of = [](const std::vector<std::uint32_t>& names,
                          const std::vector<std::uint64_t>& operands) {
    return schedule_file_of([&](flatbuffers::FlatBufferBuilder& to) {
      const auto all_names = to.CreateVectorOfStrings({"aten::mm"});
      const auto all_numbers = to.CreateVector(names);
      const auto all_operands = to.CreateVector(operands);
      schedule_file::ScheduleBuilder builder(to);
      builder.add_names(all_names);
      builder.add_operator_names(all_numbers);
      builder.add_operands(all_operands);
      to.Finish(builder.Finish());
    });
  };
  CHECK(refusal_of_schedule(file_of({0, 0}, {5, 6})) == "");
  CHECK(refusal_of_schedule(file_of({1}, {5})) ==
        "'x' is malformed: an operator has name 1, there are 1");
  CHECK(refusal_of_schedule(file_of({0, 0}, {5})) ==
        "'x' is malformed: it has 1 hashes of operands, more are named");
  CHECK(refusal_of_schedule(file_of({0}, {5, 6})) ==
        "'x' is malformed: 1 of 2 hashes of operands are nobody's");
}

TEST_CASE("A schedule says what is different in another step, and nothing of times",
          "[graph][file]") {
  const Graph graph = parse_graph(kGoldenGraph, "golden");
  Schedule schedule;
  CHECK(difference(schedule, graph) == "");  // it does not say
  schedule.operators = identities_of(graph);
  Graph other = graph;
  other.operators[0].alternatives[0].ns += 1;
  other.operators[0].alternatives[0].workspace += 64;
  other.operators[1].phase = Phase::kLoss;
  CHECK(difference(schedule, other) == "");
  other.storages[1].bytes += 64;
  CHECK(difference(schedule, other) ==
        "it is for another step of 2 operators: operator 1, f, takes or makes others, or of other "
        "sizes");
  other.operators[0].name = "h";
  CHECK(difference(schedule, other) ==
        "it is for another step of 2 operators: operator 0 is g there and h here");
  other = graph;
  other.operators.push_back({"last", {}, {}, {}, {{}}});
  CHECK(difference(schedule, other) ==
        "it is for a step of 2 operators, this one has 3: operator 2 is nothing there and last "
        "here");
}

TEST_CASE("A graph is read back from its binary file as it was written", "[graph][file]") {
  std::mt19937 random(22);
  const TemporaryFolder folder;
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    Graph graph = some_graph(random);
    graph.storages[0].role = trace::RoleKind::kInput;
    graph.operators[0].forward = static_cast<OperatorId>(graph.operators.size() - 1);
    graph.operators[0].phase = Phase::kOptimizer;
    if (round % 2 == 0) graph.operators.back().alternatives[0].algorithm = "op0";
    if (round % 3 == 0) graph.operators[0].alternatives.back().algorithm = "direct";
    const File file = serialize_graph(graph);
    REQUIRE(parse_graph_file(file, "x") == graph);
    // The reader of all forms tells by the content.
    write_file_atomically(folder / "x", file);
    REQUIRE(read_graph(folder / "x") == graph);
    REQUIRE(parse_graph(to_json(graph), "json") == graph);
    write_graph(folder / "x.graph", graph);
    REQUIRE(read_file(folder / "x.graph", 1 << 20) == file);
    write_graph(folder / "x.json", graph);
    REQUIRE(read_graph(folder / "x.json") == graph);
  }
  CHECK(parse_graph_file(serialize_graph({}), "empty") == Graph{});
}

TEST_CASE("Cut or flipped anywhere, a schedule or a graph is refused", "[graph][file]") {
  std::mt19937 random(23);
  const auto [graph, schedule] = some_schedule(random);
  refuse_cut_and_flipped(serialize_schedule(schedule), refusal_of_schedule);
  refuse_cut_and_flipped(serialize_graph(graph), refusal_of_graph);
}

TEST_CASE("Damage behind a right checksum is refused, or is a schedule or a graph",
          "[graph][file][fuzz]") {
  std::mt19937 random(24);
  int schedules = 0, graphs = 0;
  for (int round = 0; round < 100; ++round) {
    const auto [graph, schedule] = some_schedule(random);
    for (int k = 0; k < 100; ++k) {
      CAPTURE(round, k);
      const auto damaged = [&](File file) {
        for (unsigned changes = 1 + random() % 3; changes > 0; --changes)
          file[random() % (file.size() - 8)] =
              static_cast<std::byte>(random() % 3 == 0 ? 255 : random() % 8);
        return repaired(std::move(file));
      };
      const File bad_schedule = damaged(serialize_schedule(schedule));
      if (refusal_of_schedule(bad_schedule).empty()) {
        // Whatever it says, the referee judges it.
        (void)replay(graph, parse_schedule(bad_schedule, "x"));
        ++schedules;
      }
      const File bad_graph = damaged(serialize_graph(graph));
      if (refusal_of_graph(bad_graph).empty()) {
        REQUIRE(violation(parse_graph_file(bad_graph, "x")).empty());
        ++graphs;
      }
    }
  }
  CHECK((schedules > 100 && schedules < 9900));
  CHECK((graphs > 100 && graphs < 9900));
}

TEST_CASE("What no schedule holds is one message", "[graph][file]") {
  namespace fb = schedule_file;
  constexpr Bytes kNone = Buffer::kNoOffset;
  const auto file_of = [](std::vector<fb::Buffer> buffers, std::vector<std::uint64_t> offsets,
                          std::vector<fb::Step> steps, std::vector<std::uint32_t> reads,
                          std::vector<std::uint32_t> writes) {
    return schedule_file_of([&](flatbuffers::FlatBufferBuilder& to) {
      const auto all_buffers = to.CreateVectorOfStructs(buffers);
      const auto all_offsets = to.CreateVector(offsets);
      const auto all_steps = to.CreateVectorOfStructs(steps);
      const auto all_reads = to.CreateVector(reads);
      const auto all_writes = to.CreateVector(writes);
      to.Finish(fb::CreateSchedule(to, all_buffers, all_offsets, all_steps, all_reads, all_writes));
    });
  };
  CHECK(refusal_of_schedule(file_of({{0, 1}}, {5}, {{kNone, 0, 0, 1, 1, 0}, {kNone, 0, 0, 0, 0, 1}},
                                    {0}, {0})) == "");
  CHECK(refusal_of_schedule(file_of({{0, 1}}, {}, {}, {}, {})) ==
        "'x' is malformed: it has 0 offsets, more are named");
  CHECK(refusal_of_schedule(file_of({{0, 0}}, {5}, {}, {}, {})) ==
        "'x' is malformed: 1 of 1 offsets are nobody's");
  CHECK(refusal_of_schedule(file_of({{0, 0}}, {}, {{kNone, 0, 0, 2, 0, 0}}, {0}, {})) ==
        "'x' is malformed: it has 1 reads, more are named");
  CHECK(refusal_of_schedule(file_of({{0, 0}}, {}, {{kNone, 0, 0, 0, 0, 0}}, {}, {0})) ==
        "'x' is malformed: 1 of 1 writes are nobody's");
  CHECK(refusal_of_schedule(file_of({{0, 0}}, {}, {{kNone, 0, 0, 1, 0, 0}}, {1}, {})) ==
        "'x' is malformed: step 0 names buffer 1, there are 1");
  CHECK(refusal_of_schedule(file_of({}, {}, {{kNone, 0, 0, 0, 0, 3}}, {}, {})) ==
        "'x' is malformed: step 0 names buffer 0, there are 0");
  CHECK(refusal_of_schedule(file_of({}, {}, {{kNone, 0, 0, 0, 0, 4}}, {}, {})) ==
        "'x' is malformed: a step of kind 4, the last is 3");
  Schedule none;
  none.steps.emplace_back().reads = {0};
  CHECK_THROWS_WITH(serialize_schedule(none),
                    "a malformed schedule: step 0 names buffer 0, there are 0");
  Graph wrong;
  wrong.operators.emplace_back();
  CHECK_THROWS_WITH(serialize_graph(wrong), Contains("has 0 alternatives"));
}

TEST_CASE("A plan, a schedule and a graph are told apart", "[graph][file]") {
  std::mt19937 random(25);
  const auto [graph, schedule] = some_schedule(random);
  const Plan nothing;
  const File plan = serialize_plan(nothing);
  CHECK(first_section(plan) == SectionType::kSummary);
  CHECK(first_section(serialize_schedule(schedule)) == SectionType::kSchedule);
  CHECK(first_section(serialize_graph(graph)) == SectionType::kGraph);
  CHECK(first_section(File(35)) == std::nullopt);
  CHECK(first_section(File(36)) == std::nullopt);
  CHECK_THAT(refusal_of_schedule(plan), Contains("section 0 of type 1 is required and not known"));
  CHECK_THAT(refusal_of_graph(serialize_schedule(schedule)),
             Contains("section 0 of type 4 is required and not known"));
  CHECK_THAT(refusal([&] { (void)parse_plan(serialize_graph(graph), "x"); }),
             Contains("section 0 of type 5"));
}
