// The training program of the benchmarks, with a sample or two a step, on made-up data.
#include "csrc/graph/graph.h"
#include "csrc/graph/hash.h"
#include "csrc/graph/schedule.h"
#include "tests/catch.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_folder.h"

#include <berth/referee.h>
#include <berth/schedule.h>

#include <nlohmann/json.hpp>

#include <fstream>
#include <map>

using berth::test::run_program;
using berth::test::TemporaryFolder;
using Catch::Matchers::Contains;

namespace {

// Fills a folder with data of the right form.
void write_data(const TemporaryFolder& folder) {
  std::ofstream digits(folder / "digits.csv"), text(folder / "text.txt");
  for (int sample = 0; sample < 50; ++sample) {
    for (int pixel = 0; pixel < 64; ++pixel) digits << (sample * 7 + pixel * 3) % 17 << ',';
    digits << sample % 10 << '\n';
  }
  for (int i = 0; i < 2000; ++i) text << static_cast<char>('a' + i * i % 23);
}

nlohmann::json train(const TemporaryFolder& folder, const std::string& model, const char* mode,
                     const char* mark = "--mark") {
  const auto run = run_program(
      {BERTH_TEST_TRAIN, "--model", model, "--batch", "2", "--steps", "6", "--warmup", "2",
       "--threads", "1", mark, "--data", folder.path(), "--quiet", "--json", folder / "run.json"},
      {{"BERTH_MODE", mode}, {"BERTH_CHECK", "full"}, {"BERTH_PLAN_TIME_LIMIT", "0.05"}});
  CAPTURE(model, mode);
  REQUIRE(run.err == "");
  REQUIRE(run.exit_code == 0);
  std::ifstream file(folder / "run.json");
  return nlohmann::json::parse(file);
}

// As a step program, with these settings; gives the result.
nlohmann::json train_program(const TemporaryFolder& folder, const std::string& model,
                             std::map<std::string, std::string> settings,
                             const std::string& warned = {}) {
  settings.try_emplace("BERTH_MODE", "off");
  const auto run =
      run_program({BERTH_TEST_TRAIN, "--model", model, "--batch", "2", "--steps", "5", "--warmup",
                   "1", "--threads", "1", "--data", folder.path(), "--quiet", "--program",
                   "--written-graph", folder / "written.graph", "--json", folder / "run.json"},
                  {settings.begin(), settings.end()});
  CAPTURE(model, run.err);
  REQUIRE(run.exit_code == 0);
  REQUIRE(run.err.empty() == warned.empty());
  REQUIRE_THAT(run.err, Contains(warned));
  std::ifstream file(folder / "run.json");
  return nlohmann::json::parse(file);
}

// Of graphs of one step, measured in two ways: everything but times, workspaces and roles.
void require_same_step(const berth::graph::Graph& a, const berth::graph::Graph& b) {
  REQUIRE(a.operators.size() == b.operators.size());
  for (std::size_t n = 0; n < a.operators.size(); ++n) {
    const auto &one = a.operators[n], &other = b.operators[n];
    CAPTURE(n, one.name);
    REQUIRE(one.name == other.name);
    REQUIRE(one.phase == other.phase);
    REQUIRE(one.traits == other.traits);
    REQUIRE(one.alternatives.front().reads == other.alternatives.front().reads);
    REQUIRE(one.alternatives.front().writes == other.alternatives.front().writes);
  }
  REQUIRE(a.storages.size() == b.storages.size());
  for (std::size_t n = 0; n < a.storages.size(); ++n) {
    CAPTURE(n);
    REQUIRE(a.storages[n].bytes == b.storages[n].bytes);
    REQUIRE(a.storages[n].kind == b.storages[n].kind);
  }
  REQUIRE(a.control == b.control);
  REQUIRE(berth::graph::identities_of(a) == berth::graph::identities_of(b));
}

}  // namespace

TEST_CASE("A trace of a step program has its graph, and a schedule of the trace runs the program",
          "[models][step]") {
  const TemporaryFolder folder;
  write_data(folder);
  for (const char* model : {"resnet18", "gpt", "lstm", "mlp"}) {
    CAPTURE(model);
    const auto recorded = train_program(folder, model,
                                        {{"BERTH_MODE", "record"},
                                         {"BERTH_RECORD", "operators"},
                                         {"BERTH_TRACE", folder / "x.trace"}});
    REQUIRE(recorded["program"]["scheduled"] >= 2);
    const auto traced = berth::graph::read_graph(folder / "x.trace");
    require_same_step(traced, berth::graph::read_graph(folder / "written.graph"));

    berth::schedule::StepOptions planning;
    const berth::Bytes resident = recorded["program"]["resident"],
                       peak = recorded["program"]["recorded_peak"];
    planning.iteration_budget = 200;
    planning.addresses = false;
    berth::schedule::StepResult planned;
    for (const berth::Bytes eighths : {6, 7, 8}) {
      planning.budget = resident + (peak - resident) * eighths / 8;
      planned = berth::schedule::plan_step(traced, planning);
      if (planned.schedule) break;
    }
    CAPTURE(planned.why_not);
    REQUIRE(planned.schedule);
    berth::graph::write_schedule(folder / "x.schedule", *planned.schedule);
    const auto followed = train_program(folder, model, {{"BERTH_SCHEDULE", folder / "x.schedule"}});
    REQUIRE(followed["program"]["schedule_not_taken"] == "");
    REQUIRE(followed["program"]["scheduled"] >= 2);
    // A trace has workspaces as their blocks are rounded.
    berth::graph::Schedule same = *planned.schedule;
    same.graph_hash = same.budget = 0;  // the graph's times are others
    const berth::graph::Verdict replayed =
        berth::graph::replay(berth::graph::read_graph(folder / "written.graph"), same);
    REQUIRE(replayed.violation == "");
    REQUIRE(replayed.peak <= planned.verdict.peak);
    REQUIRE(replayed.peak + 4096 > planned.verdict.peak);
    // The program counts what its body makes and holds, too.
    const berth::Bytes predicted = followed["program"]["predicted_peak"];
    REQUIRE(predicted + 4096 > planned.verdict.peak);
    REQUIRE(predicted < planned.verdict.peak + 65536);
    REQUIRE(followed["program"]["recomputed"] == planned.verdict.recomputed);
    REQUIRE(followed["losses_hex"] == recorded["losses_hex"]);
  }
  // The last one is of the MLP.
  const auto other =
      train_program(folder, "lstm", {{"BERTH_SCHEDULE", folder / "x.schedule"}}, "operator 0 is ");
  REQUIRE(other["program"]["scheduled"] >= 2);
}

TEST_CASE("Every model trains under berth with the losses that it has without", "[models]") {
  const TemporaryFolder folder;
  write_data(folder);
  for (const char* model : {"resnet18", "gpt", "lstm", "mlp"}) {
    const auto plain = train(folder, model, "off"), learned = train(folder, model, "learn");
    CAPTURE(model);
    REQUIRE(plain["losses_hex"].size() == 8);
    REQUIRE(learned["losses_hex"] == plain["losses_hex"]);
    REQUIRE(plain["stats"].is_null());
    REQUIRE(learned["stats"]["steps"] == 8);
    REQUIRE(learned["stats_after_warmup"]["steps"] == 2);
  }
}

TEST_CASE("The result tells each step and the memory of the process", "[models]") {
  const TemporaryFolder folder;
  write_data(folder);
  const auto result = train(folder, "mlp", "learn", "--no-mark");
  REQUIRE(result["steps"].size() == 6);
  for (const auto& step : result["steps"]) {
    REQUIRE(step["ms"] > 0);
    REQUIRE(step["minor_faults"] >= 0);
  }
  REQUIRE(result["peak_rss_bytes"] > 50'000'000);
  REQUIRE(result["stats"]["steps"] == 0);
}

TEST_CASE("Data of another form is refused with file and line", "[models][errors]") {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& digits) {
    std::ofstream(folder / "digits.csv") << digits;
    return run_program({BERTH_TEST_TRAIN, "--model", "mlp", "--data", folder.path()});
  };
  REQUIRE_THAT(run("1,2,x\n").err, Contains("digits.csv:1: 'x' is no number"));
  REQUIRE_THAT(run("").err, Contains("no digits in it"));
  std::string row;
  for (int i = 0; i < 64; ++i) row += "1,";
  REQUIRE_THAT(run(row + "1\n" + row + "10\n").err, Contains("digits.csv:2: want 64 pixels"));
  REQUIRE(run(row + "1,1\n").exit_code == 1);
}
