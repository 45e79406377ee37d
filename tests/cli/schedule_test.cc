#include "csrc/graph/file.h"
#include "csrc/graph/schedule_file.h"
#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/recording.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_files.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <random>

using namespace berth::test;
using Catch::Matchers::Contains;

namespace {

// A layered graph as Moccasin's: `nodes` of them, each reads some before it.
std::string layered(int nodes) {
  std::mt19937 random(4);
  std::string text = R"({"nodes": [)";
  for (int k = 0; k < nodes; ++k)
    text += fmt::format(R"({}{{"name": {}, "out_cost": {}, "duration": 1}})", k == 0 ? "" : ", ", k,
                        1 + random() % 900);
  text += R"(], "links": [)";
  bool first = true;
  for (int k = 1; k < nodes; ++k)
    for (unsigned reads = random() % 3; reads > 0; --reads) {
      text += fmt::format(R"({}{{"0": {}, "1": {}}})", first ? "" : ", ",
                          random() % static_cast<unsigned>(k), k);
      first = false;
    }
  return text + "]}";
}

// A chain of `length` operators and its mirror, each making so many bytes, in Moccasin's form of
// Keras models.
std::string trained(int length, int bytes = 65536) {
  std::string nodes, links;
  for (int k = 0; k < 2 * length; ++k) {
    nodes += fmt::format(
        R"({}{{"id": {}, "name": "n{}", "cost_ram": {}, "cost_cpu": 1000, "backward": {}}})",
        k == 0 ? "" : ", ", k, k, bytes, k >= length);
    if (k > 0)
      links += fmt::format(R"({}{{"source": {}, "target": {}}})", k == 1 ? "" : ", ", k - 1, k);
    if (k > length)
      links += fmt::format(R"(, {{"source": {}, "target": {}}})", 2 * length - 1 - k, k);
  }
  return fmt::format(R"({{"nodes": [{}], "links": [{}]}})", nodes, links);
}

// Two branches of a step, whose large halves lie beside each other as it was run.
berth::Trace branches() {
  Recording run;
  const berth::trace::BlockId input = run.request(64);
  for (int step = 0; step < 4; ++step) {
    run.mark();
    const auto a = run.make("aten::exp", {input}, 64 * 1024);
    const auto b = run.make("aten::log", {input}, 64 * 1024);
    const auto less = run.make("aten::sum", {a}, 64);
    run.free(a);
    const auto more = run.make("aten::mean", {b}, 64);
    run.free(b);
    run.free(run.make("aten::add", {less, more}, 64));
    run.free({less, more});
  }
  run.mark();
  return run.builder.trace();
}

}  // namespace

TEST_CASE("A recorded step becomes a graph, and is ordered as one", "[cli][schedule]") {
  const TemporaryFolder folder;
  berth::write_trace(folder / "x.trace", branches());
  const nlohmann::json made =
      run_berth_json({"graph", folder / "x.trace", "-o", folder / "x.graph"});
  REQUIRE(made["operators"] == 5);
  REQUIRE(made["resident_bytes"] == 64);
  REQUIRE(made["recorded_peak_bytes"] == 64 + 2 * 64 * 1024 + 64);
  REQUIRE(made["recorded_steps"] == 4);
  REQUIRE(made["held_byte_ticks"] > 0);
  for (const char* file : {"x.trace", "x.graph"}) {
    const nlohmann::json ordered = run_berth_json({"schedule", folder / file, "--order-only"});
    REQUIRE(ordered["given_peak_bytes"] == 64 + 2 * 64 * 1024 + 64);
    REQUIRE(ordered["peak_bytes"] == 64 + 64 * 1024 + 2 * 64);
    REQUIRE(ordered["proven_optimal"] == true);
  }
  const Ran ran = run_berth({"graph", folder / "x.trace"});
  REQUIRE(ran.code == 0);
  REQUIRE_THAT(ran.out, Contains("alive at most; times are the medians of 4 steps"));
}

TEST_CASE("A published graph is ordered and written with its order", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", layered(60));
  const nlohmann::json read =
      run_berth_json({"graph", folder / "x.json", "-o", folder / "x.graph"});
  REQUIRE(read["operators"] == 60);
  REQUIRE(read["resident_bytes"] == 0);
  const nlohmann::json ordered =
      run_berth_json({"schedule", folder / "x.graph", "--order-only", "-o", folder / "y.graph",
                      "--iterations", "20000"});
  REQUIRE(ordered["peak_bytes"] <= ordered["given_peak_bytes"]);
  REQUIRE(ordered["bound_bytes"] <= ordered["peak_bytes"]);
  REQUIRE(ordered["proven_optimal"] == (ordered["bound_bytes"] == ordered["peak_bytes"]));
  // The order is in the file: it is what is given from then on.
  const nlohmann::json again = run_berth_json(
      {"schedule", folder / "y.graph", "--order-only", "--engine", "given", "--iterations", "1"});
  REQUIRE(again["given_peak_bytes"] == ordered["peak_bytes"]);
  REQUIRE(again["peak_bytes"] == ordered["peak_bytes"]);
  const Ran ran =
      run_berth({"schedule", folder / "x.graph", "--order-only", "--iterations", "20000"});
  REQUIRE(ran.code == 0);
  for (const char* word : {"as given", "peak", "lower bound", "gap", "ordered in"})
    REQUIRE_THAT(ran.out, Contains(word));
  REQUIRE(run_berth({"graph", folder / "x.json"}).code == 0);
}

TEST_CASE("The algorithm that a run takes is shown by its name", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", R"({"format": "berth-graph 1",
    "storages": [{"bytes": 4096, "class": "step"}],
    "operators": [{"name": "convolution", "phase": "forward", "alternatives": [
      {"ns": 900, "workspace": 0, "reads": [], "writes": [[0, 1]], "algorithm": "direct"},
      {"ns": 200, "workspace": 4096, "reads": [], "writes": [[0, 1]], "algorithm": "winograd"}]}]})");
  REQUIRE(
      run_berth({"schedule", folder / "x.json", "--budget", "8KiB", "-o", folder / "x.schedule"})
          .code == 0);
  const nlohmann::json shown = run_berth_json({"show", folder / "x.schedule", folder / "x.json"});
  REQUIRE(shown["alternatives_taken"].size() == 1);
  REQUIRE(shown["alternatives_taken"][0]["algorithm"] == "winograd");
  const Ran ran = run_berth({"show", folder / "x.schedule", folder / "x.json"});
  REQUIRE_THAT(ran.out, Contains("by another alternative than recorded"));
  REQUIRE_THAT(ran.out, Contains("winograd"));
}

TEST_CASE("Equal seeds give equal orders", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", layered(700));
  for (const char* name : {"a", "b"})
    REQUIRE(run_berth({"schedule", folder / "x.json", "--order-only", "--iterations", "3000", "-o",
                       folder / name})
                .code == 0);
  REQUIRE(read_text(folder / "a") == read_text(folder / "b"));
}

TEST_CASE("OLLA's program orders what is small", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", layered(9));
  const Ran ran = run_berth({"schedule", folder / "x.json", "--order-only", "--engine", "olla",
                             "--iterations", "1000", "--json"});
  INFO(ran.err);
  if (ran.code == 2) {  // it needs a library that may be missing
    REQUIRE_THAT(ran.err, Contains("HiGHS"));
    return;
  }
  REQUIRE(ran.code == 0);
  const nlohmann::json solved = nlohmann::json::parse(ran.out);
  REQUIRE(solved["proven_optimal"] == true);
  REQUIRE(solved["peak_bytes"] ==
          run_berth_json({"schedule", folder / "x.json", "--order-only"})["peak_bytes"]);
  write_text(folder / "large.json", layered(70));
  const Ran large =
      run_berth({"schedule", folder / "large.json", "--order-only", "--engine", "olla"});
  REQUIRE(large.code == 2);
  REQUIRE_THAT(large.err, Contains("at most 60 operators, not 70"));
}

TEST_CASE("Ordering shows its progress on a terminal", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", layered(3000));
  RunOptions terminal;
  terminal.error = Stream::kTerminal;
  const Ran ran =
      run_berth({"schedule", folder / "x.json", "--order-only", "--time-limit", "0.2"}, terminal);
  REQUIRE(ran.code == 0);
  REQUIRE_THAT(ran.err, Contains("ordering: best "));
}

TEST_CASE("A step is planned within a budget, verified and shown", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", trained(12));
  const std::vector<std::string> search = {"--iterations", "20000"};
  const auto planned = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"schedule", folder / "x.json"});
    arguments.insert(arguments.end(), search.begin(), search.end());
    return run_berth(arguments);
  };
  const Ran free = planned({"--budget", "100%", "--json"});
  REQUIRE(free.code == 0);
  REQUIRE(nlohmann::json::parse(free.out)["recomputed"] == 0);
  REQUIRE(nlohmann::json::parse(free.out)["proven_optimal"] == true);
  const Ran tight = planned({"--budget", "60%", "--json", "-o", folder / "x.schedule"});
  CAPTURE(tight.out, tight.err);
  REQUIRE(tight.code == 0);
  const nlohmann::json json = nlohmann::json::parse(tight.out);
  REQUIRE(json["peak_bytes"] <= json["budget_bytes"]);
  REQUIRE(json["recomputed"] > 0);
  REQUIRE(json["time_ns"].get<int>() == 24'000 + 1000 * json["recomputed"].get<int>());
  REQUIRE(run_berth({"verify", folder / "x.schedule", folder / "x.json"}).code == 0);
  const Ran shown = run_berth({"show", folder / "x.schedule", folder / "x.json"});
  REQUIRE(shown.code == 0);
  REQUIRE_THAT(shown.out, Contains("recomputed"));
  const Ran text = planned({"--budget", "60%"});
  REQUIRE_THAT(text.out, Contains("recomputed"));
  REQUIRE_THAT(text.out, Contains("least        192.0 KiB"));
  // The same with copies at a rate that hides them.
  const Ran copied = planned({"--budget", "60%", "--rate-out", "1TB", "--json"});
  REQUIRE(copied.code == 0);
  REQUIRE(nlohmann::json::parse(copied.out)["time_ns"] <= json["time_ns"]);
}

TEST_CASE("A budget of time gets the least memory within it", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", trained(12));
  const auto planned = [&](const char* share) {
    return run_berth_json({"schedule", folder / "x.json", "--time-budget", share, "--iterations",
                           "3000", "-o", folder / share});
  };
  const nlohmann::json none = planned("0"), some = planned("0.3"), more = planned("0.6");
  REQUIRE(none["budget_bytes"].is_null());
  REQUIRE(some["time_budget"] == 0.3);
  REQUIRE(none["time_ns"] == none["base_time_ns"]);
  REQUIRE(some["time_ns"].get<double>() <= 1.3 * some["base_time_ns"].get<double>());
  REQUIRE(some["peak_bytes"] < none["peak_bytes"]);
  REQUIRE(more["peak_bytes"] < some["peak_bytes"]);
  REQUIRE(run_berth({"verify", folder / "0.3", folder / "x.json"}).code == 0);
  const Ran text =
      run_berth({"schedule", folder / "x.json", "--time-budget", "0.3", "--iterations", "3000"});
  REQUIRE_THAT(text.out, Contains("30.00 % more time"));
  REQUIRE(run_berth({"schedule", folder / "x.json", "--time-budget", "-1"}).code == 2);
  REQUIRE(run_berth({"schedule", folder / "x.json", "--time-budget", "nan"}).code == 2);
  REQUIRE(run_berth({"schedule", folder / "x.json", "--time-budget", "1", "--budgets"}).code == 2);
}

TEST_CASE("What is copied has its place on the host in the schedule", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", trained(12, 4 << 20));
  const std::vector<std::string> planned = {
      "schedule",   folder / "x.json", "--budget",     "60%",  "--engine", "offload",
      "--rate-out", "100TB",           "--iterations", "1000", "-o",       folder / "x.schedule"};
  const nlohmann::json json = run_berth_json(planned);
  REQUIRE(json["offloaded_bytes"] > 0);
  REQUIRE(json["host_peak_bytes"] > 0);
  REQUIRE(json["host_arena_bytes"] >= json["host_peak_bytes"]);
  const std::vector<std::string> rates = {"--rate-out", "100TB", "--rate-in", "100TB"};
  const auto with_rates = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), rates.begin(), rates.end());
    return arguments;
  };
  const std::string schedule = folder / "x.schedule", graph = folder / "x.json";
  const nlohmann::json shown = run_berth_json(with_rates({"show", schedule, graph}));
  REQUIRE(shown["host_arena_bytes"] == json["host_arena_bytes"]);
  REQUIRE(shown["host_peak_bytes"] == json["host_peak_bytes"]);
  REQUIRE_THAT(run_berth(with_rates({"show", schedule, graph})).out, Contains("on the host"));
  REQUIRE_THAT(run_berth(planned).out, Contains("at most"));
  REQUIRE(run_berth(with_rates({"verify", schedule, graph})).code == 0);
  // All copies in one place, where some are away at one time.
  berth::graph::Schedule crowded = berth::graph::read_schedule(schedule);
  for (berth::graph::ScheduleStep& step : crowded.steps)
    if (step.kind == berth::graph::ScheduleStep::Kind::kOffload) step.host_offset = 0;
  berth::graph::write_schedule(schedule, crowded);
  const Ran refused = run_berth(with_rates({"verify", schedule, graph}));
  REQUIRE(refused.code == 1);
  REQUIRE_THAT(refused.err, Contains("of the host's arena"));
}

TEST_CASE("Eight budgets are a row each, and none is slower than a smaller one",
          "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", trained(8));
  const Ran ran =
      run_berth({"schedule", folder / "x.json", "--budgets", "--iterations", "5000", "--json"});
  REQUIRE(ran.code == 0);
  const nlohmann::json rows = nlohmann::json::parse(ran.out)["budgets"];
  REQUIRE(rows.size() == 8);
  for (std::size_t k = 1; k < rows.size(); ++k)
    if (rows[k - 1]["fits"]) REQUIRE(rows[k]["time_ns"] <= rows[k - 1]["time_ns"]);
  REQUIRE(rows[7]["recomputed"] == 0);
  REQUIRE_THAT(run_berth({"schedule", folder / "x.json", "--budgets", "--iterations", "500"}).out,
               Contains("recomputed"));
}

TEST_CASE("A budget that nothing fits says what needs how much", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", trained(8));
  const Ran text = run_berth({"schedule", folder / "x.json", "--budget", "128KiB"});
  REQUIRE(text.code == 1);
  REQUIRE_THAT(text.out, Contains("alone, the budget is 128.0 KiB: 64.0 KiB are missing"));
  REQUIRE_THAT(text.out, !Contains("best order"));  // none was looked for
  const Ran json = run_berth({"schedule", folder / "x.json", "--budget", "128KiB", "--json"});
  REQUIRE(json.code == 1);
  REQUIRE(nlohmann::json::parse(json.out)["fits"] == false);
  REQUIRE_THAT(nlohmann::json::parse(json.out)["reason"].get<std::string>(),
               Contains("64.0 KiB are missing"));
}

TEST_CASE("What cannot be ordered is one error", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(
      folder / "cycle.json",
      R"({"nodes": [{"name": 1, "out_cost": 1, "duration": 0}, {"name": 2, "out_cost": 1, "duration": 0}],
      "links": [{"0": 1, "1": 2}, {"0": 2, "1": 1}]})");
  write_text(folder / "x.json", layered(5));
  berth::Trace requests = branches();
  std::erase_if(requests.entries, [](const berth::trace::Entry& entry) {
    return std::holds_alternative<berth::trace::Operand>(entry.event);
  });
  berth::write_trace(folder / "requests.trace", requests);
  write_text(folder / "lifetimes.csv", "id,lower,upper,size\n1,0,2,64\n");
  write_text(folder / "log.jsonl", R"({"INSTRUCTION":"RELEASE","NAME":"x1"})");
  write_text(folder / "deep.jsonl", "{\"INSTRUCTION\":" + std::string(1'000'000, '['));
  const struct {
    std::vector<std::string> arguments;
    int code;
    const char* text;
  } cases[] = {
      {{"schedule", folder / "cycle.json", "--order-only"}, 3, "lies on a cycle"},
      {{"graph", folder / "absent.json"}, 3, "absent.json"},
      {{"graph", folder / "log.jsonl"}, 3, "line 1: RELEASE names x1, which is not held"},
      {{"graph", folder / "deep.jsonl"}, 3, "brackets are nested more than 16 deep"},
      {{"schedule", folder / "x.json"}, 2, "--order-only"},
      {{"schedule", folder / "x.json", "--order-only", "--budgets"}, 2, "one of --budget"},
      {{"schedule", folder / "x.json", "--budget", "0%"}, 2, "--budget is 0%"},
      {{"schedule", folder / "x.json", "--budgets", "-o", folder / "x.schedule"},
       2,
       "-o writes one"},
      {{"schedule", folder / "x.json", "--budget", "1KiB", "-o", folder / "x.graph"}, 2, "a graph"},
      {{"schedule", folder / "x.json", "--budget", "x%"}, 2, "--budget is x%"},
      {{"schedule", folder / "x.json", "--budget", "much"}, 2, "--budget"},
      {{"schedule", folder / "x.json", "--budget", "1KiB", "--rate-in", "0"}, 2, "--rate-in"},
      {{"schedule", folder / "x.json", "--budget", "1KiB", "--engine", "descent"}, 2, "--engine"},
      {{"schedule", folder / "x.json", "--order-only", "--engine", "best"}, 2, "best"},
      {{"schedule", folder / "x.json", "--order-only", "--time-limit", "0"}, 2, "--time-limit"},
      {{"schedule", folder / "x.json", "--order-only", "-o", folder / "no/folder"}, 2, "no folder"},
      {{"graph", folder / "x.json", "-o", folder.path()}, 2, "it is a folder"},
      {{"graph", folder / "requests.trace"}, 3, "`berth record --operators` records them"},
      {{"schedule", folder / "requests.trace", "--order-only"}, 3, "requests.trace"},
      {{"graph", folder / "lifetimes.csv"}, 3, "a graph or a trace with operators is wanted"},
  };
  for (const auto& [arguments, code, text] : cases) {
    const Ran ran = run_berth(arguments);
    CHECK(ran.code == code);
    CHECK_THAT(ran.err, Contains(text));
  }
}

TEST_CASE("A schedule is written, verified against its graph and shown", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", layered(60));
  write_text(folder / "other.json", layered(61));
  REQUIRE(run_berth({"graph", folder / "x.json", "-o", folder / "x.graph"}).code == 0);
  const nlohmann::json made =
      run_berth_json({"schedule", folder / "x.json", "--order-only", "--iterations", "20000", "-o",
                      folder / "x.schedule"});
  REQUIRE(made["arena_bytes"] >= made["peak_bytes"]);  // there are no residents
  REQUIRE(made["fragmentation"] ==
          1 - made["peak_bytes"].get<double>() / made["arena_bytes"].get<double>());
  // The binary graph and the JSON are the same graph.
  for (const char* graph : {"x.graph", "x.json"}) {
    const nlohmann::json verdict =
        run_berth_json({"verify", folder / "x.schedule", folder / graph});
    REQUIRE(verdict["legal"] == true);
    REQUIRE(verdict["violation"].is_null());
    REQUIRE(verdict["peak_bytes"] == made["peak_bytes"]);
    REQUIRE(verdict["given_peak_bytes"] == made["given_peak_bytes"]);
    REQUIRE(verdict["bound_bytes"] == made["bound_bytes"]);
    REQUIRE(verdict["operators_run"] == 60);
    REQUIRE(verdict["recomputed"] == 0);
    REQUIRE(verdict["arena_bytes"] == made["arena_bytes"]);
    REQUIRE(verdict["fragmentation"].get<double>() ==
            Approx(made["fragmentation"].get<double>()).margin(1e-12));
  }
  REQUIRE_THAT(run_berth({"verify", folder / "x.schedule", folder / "x.graph"}).out,
               Contains("legal, "));
  const Ran foreign = run_berth({"verify", folder / "x.schedule", folder / "other.json"});
  REQUIRE(foreign.code == 1);
  REQUIRE(foreign.out.empty());
  REQUIRE_THAT(foreign.err, Contains("is not legal: the schedule is for the graph"));
  REQUIRE(run_berth_json({"verify", folder / "x.schedule", folder / "other.json"}, 1)["legal"] ==
          false);
  REQUIRE(run_berth({"show", folder / "x.schedule", folder / "other.json"}).code == 1);

  const Ran shown =
      run_berth({"show", folder / "x.schedule", folder / "x.graph", "--svg", folder / "x.svg"});
  REQUIRE(shown.code == 0);
  for (const char* word : {"as given", "peak", "lower bound", "fragmentation", "residents",
                           "alive at the peak", "made by"})
    REQUIRE_THAT(shown.out, Contains(word));
  const std::string svg = read_text(folder / "x.svg");
  REQUIRE_THAT(svg, Catch::Matchers::StartsWith("<svg xmlns"));
  for (const char* word : {"as given", "scheduled", "lower bound", "operators run", "</svg>"})
    REQUIRE_THAT(svg, Contains(word));
  REQUIRE(run_berth({"show", folder / "x.schedule", folder / "x.graph", "--svg", folder / "y.svg",
                     "--addresses"})
              .code == 0);
  const std::string addresses = read_text(folder / "y.svg");
  for (const char* word : {"address in the arena", "operators run", "live bytes", "lower bound"})
    REQUIRE_THAT(addresses, Contains(word));
  const nlohmann::json json = run_berth_json({"show", folder / "x.schedule", folder / "x.graph"});
  REQUIRE(json["largest"].size() <= 10);
  REQUIRE(json["largest"][0]["bytes"] >= json["largest"][1]["bytes"]);
  // Alone it has its planner's word.
  REQUIRE(run_berth_json({"show", folder / "x.schedule"})["claimed_peak_bytes"] ==
          made["peak_bytes"]);
  REQUIRE_THAT(run_berth({"show", folder / "x.schedule"}).out, Contains("by its planner"));
}

TEST_CASE("A schedule is written without addresses where that is asked for", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", layered(60));
  const std::vector<std::string> arguments = {
      "schedule", folder / "x.json", "--order-only", "--iterations", "2000", "-o", folder / "a"};
  REQUIRE_THAT(run_berth(arguments).out, Contains("arena") && Contains("fragmentation"));
  std::vector<std::string> without = arguments;
  without.back() = folder / "b";
  without.emplace_back("--no-addresses");
  const nlohmann::json made = run_berth_json(without);
  REQUIRE(made["arena_bytes"].is_null());
  REQUIRE(made["fragmentation"].is_null());
  const nlohmann::json bare = run_berth_json({"verify", folder / "b", folder / "x.json"});
  REQUIRE(bare["arena_bytes"] == 0);
  REQUIRE(bare["fragmentation"].is_null());
  const Ran nowhere = run_berth(
      {"show", folder / "b", folder / "x.json", "--svg", folder / "x.svg", "--addresses"});
  REQUIRE(nowhere.code == 2);
  REQUIRE_THAT(nowhere.err, Contains("has no addresses"));
  REQUIRE(read_text(folder / "b").size() < read_text(folder / "a").size());
}

TEST_CASE("What is recomputed and what is offloaded is shown with its cost", "[cli][schedule]") {
  const TemporaryFolder folder;
  const berth::graph::Graph graph = berth::graph::parse_graph(R"({"format": "berth-graph 1",
    "storages": [{"bytes": 1024, "class": "input"}, {"bytes": 2048, "class": "step"}, {"bytes": 4096, "class": "step"}],
    "operators": [
      {"name": "make", "phase": "forward", "alternatives": [{"ns": 1000, "workspace": 0, "reads": [[0, 0, 0, 1024]], "writes": [[1, 1]]}]},
      {"name": "grow", "phase": "forward", "alternatives": [{"ns": 5000, "workspace": 512, "reads": [[1, 1, 0, 2048]], "writes": [[2, 1]]}]},
      {"name": "last", "phase": "backward", "alternatives": [{"ns": 2000, "workspace": 0, "reads": [[1, 1, 0, 2048], [2, 1, 0, 4096]], "writes": []}]}]})",
                                                              "x");
  using Kind = berth::graph::ScheduleStep::Kind;
  const auto run = [](berth::graph::OperatorId op, std::vector<berth::graph::BufferId> reads,
                      std::vector<berth::graph::BufferId> writes) {
    berth::graph::ScheduleStep step;
    step.op = op;
    step.reads = std::move(reads);
    step.writes = std::move(writes);
    return step;
  };
  const auto other = [](Kind kind, berth::graph::BufferId buffer) {
    berth::graph::ScheduleStep step;
    step.kind = kind;
    step.buffer = buffer;
    return step;
  };
  berth::graph::Schedule schedule;
  schedule.buffers = {{0, {}}, {1, {}}, {2, {}}, {1, {}}};
  schedule.steps = {run(0, {0}, {1}),         run(1, {1}, {2}), other(Kind::kDrop, 1),
                    other(Kind::kOffload, 2), run(0, {0}, {3}), other(Kind::kReload, 2),
                    run(2, {3, 2}, {})};
  const std::vector<std::byte> file = berth::graph::serialize_schedule(schedule);
  write_text(folder / "x.schedule", {reinterpret_cast<const char*>(file.data()), file.size()});
  write_text(folder / "x.json", berth::graph::to_json(graph));
  const nlohmann::json json =
      run_berth_json({"show", folder / "x.schedule", folder / "x.json", "--rate-out", "4096000000",
                      "--rate-in", "2048000000"});
  REQUIRE(json["recomputed"] == 1);
  REQUIRE(json["recomputed_ns"] == 1000);
  REQUIRE(json["peak_operator"] == "grow");
  REQUIRE(json["peak_workspace_bytes"] == 512);
  REQUIRE(json["peak_bytes"] == 1024 + 2048 + 4096 + 512);
  REQUIRE(json["recomputed_operators"] ==
          nlohmann::json::parse(R"([{"operator": 0, "name": "make", "times": 1, "ns": 1000}])"));
  REQUIRE(json["offloaded"] ==
          nlohmann::json::parse(R"([{"buffer": 2, "bytes": 4096, "made_by": "grow"}])"));
  REQUIRE(json["offloaded_bytes"] == 4096);
  REQUIRE(json["time_ns"] ==
          1000 + 5000 + 1000 + 2000 + 2000);  // out beside the second run, in, last
  REQUIRE(json["base_time_ns"] == 8000);
  const Ran shown = run_berth({"show", folder / "x.schedule", folder / "x.json"});
  for (const char* word :
       {"recomputed", "1 run, 0.001 ms", "while grow runs", "512 B of them are workspace",
        "offloaded", "4.0 KiB out, 4.0 KiB in", "grow"})
    REQUIRE_THAT(shown.out, Contains(word));
  // A read before its copy in.
  std::swap(schedule.steps[5], schedule.steps[6]);
  const std::vector<std::byte> wrong = berth::graph::serialize_schedule(schedule);
  write_text(folder / "wrong.schedule",
             {reinterpret_cast<const char*>(wrong.data()), wrong.size()});
  const Ran refused = run_berth({"verify", folder / "wrong.schedule", folder / "x.json"});
  REQUIRE(refused.code == 1);
  REQUIRE_THAT(refused.err, Contains("step 5: operator 2 (last) reads version 1 of storage 2 in "
                                     "buffer 2, which was offloaded at step 3"));
  // A flipped bit.
  std::string damaged = read_text(folder / "x.schedule");
  damaged[100] = static_cast<char>(damaged[100] ^ 1);
  write_text(folder / "damaged.schedule", damaged);
  REQUIRE(run_berth({"verify", folder / "damaged.schedule", folder / "x.json"}).code == 3);
}

TEST_CASE("Graphs and schedules where something else is wanted are one error", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", layered(5));
  REQUIRE(run_berth({"graph", folder / "x.json", "-o", folder / "x.graph"}).code == 0);
  REQUIRE(run_berth({"graph", folder / "x.graph", "-o", folder / "again.json"}).code == 0);
  REQUIRE_THAT(read_text(folder / "again.json"), Contains("berth-graph 1"));
  REQUIRE(run_berth({"graph", folder / "again.json", "-o", folder / "again.graph"}).code == 0);
  REQUIRE(read_text(folder / "x.graph") == read_text(folder / "again.graph"));
  REQUIRE(run_berth({"schedule", folder / "x.graph", "--order-only", "-o", folder / "x.schedule"})
              .code == 0);
  const struct {
    std::vector<std::string> arguments;
    int code;
    const char* text;
  } cases[] = {
      {{"verify", folder / "x.schedule"}, 2, "berth verify x.schedule x.graph"},
      {{"verify", folder / "x.graph"}, 3, "is a graph: a plan or a schedule is wanted"},
      {{"verify", folder / "x.schedule", folder / "x.schedule"}, 3, "x.schedule"},
      {{"show", folder / "x.graph"}, 2, "is a graph: berth graph describes it"},
      {{"show", folder / "x.schedule", "--svg", folder / "x.svg"},
       2,
       "--svg draws what the operators of a graph have alive"},
      {{"show", folder / "x.schedule", folder / "x.graph", "--addresses"}, 2, "--svg"},
      {{"show", folder / "x.json", "--svg", folder / "x.svg", "--addresses"},
       2,
       "--addresses needs a schedule"},
      {{"show", folder / "x.schedule", folder / "x.graph", "--rate-out", "fast"},
       2,
       "--rate-out is 'fast'"},
      {{"show", folder / "x.schedule", folder / "x.graph", "--plan", folder / "x"}, 2, "--plan"},
      {{"plan", folder / "x.schedule"}, 3, "is a schedule: a trace or a CSV is wanted"},
      {{"plan", folder / "x.graph"}, 3, "is a graph: a trace or a CSV is wanted"},
      {{"replay", folder / "x.graph"}, 3, "is a graph: a trace or a CSV is wanted"},
      {{"schedule", folder / "x.schedule", "--order-only"}, 3, "x.schedule"},
  };
  for (const auto& [arguments, code, text] : cases) {
    const Ran ran = run_berth(arguments);
    CAPTURE(arguments, ran.err);
    CHECK(ran.code == code);
    CHECK_THAT(ran.err, Contains(text));
  }
}

TEST_CASE("Ctrl-C before there is a schedule is no answer", "[cli][schedule][interrupt]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", layered(6000));
  RunOptions options;
  options.signal = SIGINT;
  options.error = Stream::kTerminal;
  options.when_said = "planning";
  const Ran ran = run_berth({"schedule", folder / "x.json", "--budget", "97%", "--time-limit",
                             "600", "-o", folder / "x.schedule"},
                            options);
  INFO(ran.out << ran.err);
  REQUIRE(ran.code == 130);
  REQUIRE_THAT(ran.err, Contains("interrupted before a schedule was found"));
  REQUIRE(ran.out.empty());
  REQUIRE_FALSE(exists(folder / "x.schedule"));
}

TEST_CASE("The time limit of a schedule is that of the whole command", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", trained(60));
  for (const std::vector<std::string>& mode : std::vector<std::vector<std::string>>{
           {"--budgets"},
           {"--budget", "50%", "-o", folder / "x.schedule"},
           {"--time-budget", "1"},
           {"--time-budget", "1", "--rate-out", "10GB", "--offload-state"}}) {
    std::vector<std::string> command = {"schedule", folder / "x.json", "--time-limit", "2"};
    command.insert(command.end(), mode.begin(), mode.end());
    const auto start = std::chrono::steady_clock::now();
    const Ran ran = run_berth(command);
    INFO(ran.out << ran.err);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    CHECK(took.count() < 3);
  }
}

TEST_CASE("State may be on the host between its uses", "[cli][schedule]") {
  const TemporaryFolder folder;
  // Four operators, each with a weight of 1 MiB.
  berth::graph::Graph graph;
  for (int k = 0; k < 4; ++k)
    graph.storages.push_back({1 << 20, berth::graph::StorageClass::kResident});
  for (std::uint32_t k = 0; k < 4; ++k) {
    graph.storages.push_back({1024});
    berth::graph::Alternative way;
    way.ns = 1'000'000;
    way.reads.push_back({{k, 0}, 0, 1 << 20});
    if (k > 0) way.reads.push_back({{3 + k, 1}, 0, 1024});
    way.writes = {{4 + k, 1}};
    berth::graph::Operator& op = graph.operators.emplace_back();
    op.name = "layer";
    op.alternatives = {std::move(way)};
  }
  write_text(folder / "x.json", berth::graph::to_json(graph));
  const std::vector<std::string> within = {
      "schedule", folder / "x.json", "--budget", "3MiB", "--rate-out", "10GB", "--json"};
  REQUIRE(run_berth(within).code == 1);
  std::vector<std::string> away = within;
  away.insert(away.end(), {"--offload-state", "-o", folder / "x.schedule"});
  const Ran found = run_berth(away);
  REQUIRE(found.code == 0);
  const nlohmann::json json = nlohmann::json::parse(found.out);
  REQUIRE(json["peak_bytes"] <= 3 << 20);
  REQUIRE(json["recomputed"] == 0);
  REQUIRE(run_berth({"verify", folder / "x.schedule", folder / "x.json"}).code == 0);
  const Ran without =
      run_berth({"schedule", folder / "x.json", "--budget", "3MiB", "--offload-state"});
  REQUIRE(without.code == 2);
  REQUIRE_THAT(without.err, Contains("needs --rate-out, and --budget or"));
  // The least memory within a share of time.
  std::vector<std::string> timed = {
      "schedule", folder / "x.json", "--time-budget", "1", "--rate-out", "10GB", "--json"};
  const Ran on_device = run_berth(timed);
  REQUIRE(on_device.code == 0);
  REQUIRE(nlohmann::json::parse(on_device.out)["peak_bytes"] > 4 << 20);
  timed.push_back("--offload-state");
  const Ran on_host = run_berth(timed);
  REQUIRE(on_host.code == 0);
  const nlohmann::json least = nlohmann::json::parse(on_host.out);
  REQUIRE(least["peak_bytes"] <= 3 << 20);
  REQUIRE(least["time_ns"] <= 2 * least["base_time_ns"].get<std::uint64_t>());
}
