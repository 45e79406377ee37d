#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/temporary_folder.h"

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

}  // namespace

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
  const Ran large = run_berth({"schedule", folder / "large.json", "--order-only", "--engine", "olla"});
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

TEST_CASE("What cannot be ordered is one error", "[cli][schedule]") {
  const TemporaryFolder folder;
  write_text(folder / "cycle.json", R"({"nodes": [{"name": 1, "out_cost": 1, "duration": 0}, {"name": 2, "out_cost": 1, "duration": 0}],
      "links": [{"0": 1, "1": 2}, {"0": 2, "1": 1}]})");
  write_text(folder / "x.json", layered(5));
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
      {{"schedule", folder / "x.json", "--order-only", "--engine", "best"}, 2, "best"},
      {{"schedule", folder / "x.json", "--order-only", "--time-limit", "0"}, 2, "--time-limit"},
      {{"schedule", folder / "x.json", "--order-only", "-o", folder / "no/folder"}, 2, "no folder"},
      {{"graph", folder / "x.json", "-o", folder.path()}, 2, "it is a folder"},
  };
  for (const auto& [arguments, code, text] : cases) {
    const Ran ran = run_berth(arguments);
    CHECK(ran.code == code);
    CHECK_THAT(ran.err, Contains(text));
  }
}
