#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/recording.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_files.h"

#include <csignal>
#include <fmt/format.h>

#include <random>

using namespace berth::test;
using Catch::Matchers::Contains;

namespace {

// A layered graph as Moccasin's: `nodes` of them, each reads some before it.
std::string layered(int nodes) {
  std::mt19937 random(4);
  std::string text = R"({"nodes": [)";
  for (int k = 0; k < nodes; ++k)
    text += fmt::format(R"({}{{"name": {}, "out_cost": {}, "duration": 1}})", k == 0 ? "" : ", ", k, 1 + random() % 900);
  text += R"(], "links": [)";
  bool first = true;
  for (int k = 1; k < nodes; ++k)
    for (unsigned reads = random() % 3; reads > 0; --reads) {
      text += fmt::format(R"({}{{"0": {}, "1": {}}})", first ? "" : ", ", random() % static_cast<unsigned>(k), k);
      first = false;
    }
  return text + "]}";
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
  const nlohmann::json read = run_berth_json({"graph", folder / "x.json", "-o", folder / "x.graph"});
  REQUIRE(read["operators"] == 60);
  REQUIRE(read["resident_bytes"] == 0);
  const nlohmann::json ordered =
      run_berth_json({"schedule", folder / "x.graph", "--order-only", "-o", folder / "y.graph", "--iterations", "20000"});
  REQUIRE(ordered["peak_bytes"] <= ordered["given_peak_bytes"]);
  REQUIRE(ordered["bound_bytes"] <= ordered["peak_bytes"]);
  REQUIRE(ordered["proven_optimal"] == (ordered["bound_bytes"] == ordered["peak_bytes"]));
  // The order is in the file: it is what is given from then on.
  const nlohmann::json again =
      run_berth_json({"schedule", folder / "y.graph", "--order-only", "--engine", "given", "--iterations", "1"});
  REQUIRE(again["given_peak_bytes"] == ordered["peak_bytes"]);
  REQUIRE(again["peak_bytes"] == ordered["peak_bytes"]);
  const Ran ran = run_berth({"schedule", folder / "x.graph", "--order-only", "--iterations", "20000"});
  REQUIRE(ran.code == 0);
  for (const char* word : {"as given", "peak", "lower bound", "gap", "ordered in"})
    REQUIRE_THAT(ran.out, Contains(word));
  REQUIRE(run_berth({"graph", folder / "x.json"}).code == 0);
}

TEST_CASE("Equal seeds give equal orders", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "x.json", layered(700));
  for (const char* name : {"a", "b"})
    REQUIRE(run_berth({"schedule", folder / "x.json", "--order-only", "--iterations", "3000", "-o", folder / name}).code == 0);
  REQUIRE(read_text(folder / "a") == read_text(folder / "b"));
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

TEST_CASE("What cannot be ordered is one error", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "cycle.json", R"({"nodes": [{"name": 1, "out_cost": 1, "duration": 0}, {"name": 2, "out_cost": 1, "duration": 0}],
      "links": [{"0": 1, "1": 2}, {"0": 2, "1": 1}]})");
  write_text(folder / "x.json", layered(5));
  berth::Trace requests = branches();
  std::erase_if(requests.entries, [](const berth::trace::Entry& entry) {
    return std::holds_alternative<berth::trace::Operand>(entry.event);
  });
  berth::write_trace(folder / "requests.trace", requests);
  write_text(folder / "lifetimes.csv", "id,lower,upper,size\n1,0,2,64\n");
  const struct {
    std::vector<std::string> arguments;
    int code;
    const char* text;
  } cases[] = {
      {{"schedule", folder / "cycle.json", "--order-only"}, 3, "lies on a cycle"},
      {{"graph", folder / "absent.json"}, 3, "absent.json"},
      {{"schedule", folder / "x.json"}, 2, "--order-only"},
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
