#include "csrc/cli/core/help_format.h"
#include "csrc/cli/core/output.h"
#include "tests/catch.h"
#include "tests/cli/program.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

using namespace berth::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

TEST_CASE("The version is one line on standard output", "[cli][usage]") {
  const Ran ran = run_berth({"--version"});
  REQUIRE(ran.code == 0);
  REQUIRE_THAT(ran.out, StartsWith("berth 0."));
  REQUIRE(ran.err.empty());
}

TEST_CASE("Help names every command", "[cli][usage]") {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--help"}, {"-h"}, {"help"}}) {
    const Ran ran = run_berth(arguments);
    REQUIRE(ran.code == 0);
    REQUIRE(ran.err.empty());
    for (const char* command :
         {"record", "plan", "graph", "schedule", "show", "verify", "replay", "help"})
      REQUIRE_THAT(ran.out, Contains(command));
  }
}

TEST_CASE("Every command explains itself with an example", "[cli][usage]") {
  for (const char* command :
       {"record", "plan", "graph", "schedule", "show", "verify", "replay", "help"}) {
    INFO(command);
    const Ran asked = run_berth({command, "--help"});
    REQUIRE(asked.code == 0);
    REQUIRE_THAT(asked.out, Contains("Example:"));
    REQUIRE_THAT(asked.out, Contains(std::string("berth ") + command));
    const Ran helped = run_berth({"help", command});
    REQUIRE(helped.code == 0);
    REQUIRE(helped.out == asked.out);
  }
}

TEST_CASE("Help of every command fits a terminal of 80 columns", "[cli][usage]") {
  std::vector<std::vector<std::string>> all = {{"--help"}, {"help"}, {"help", "settings"}};
  for (const char* command : {"record", "import", "doctor", "plan", "graph", "schedule", "show",
                              "verify", "replay", "dry-run", "help"})
    all.push_back({command, "--help"});
  for (const auto& arguments : all) {
    const Ran ran = run_berth(arguments);
    REQUIRE(ran.code == 0);
    std::istringstream lines(ran.out);
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      CHECK(line.size() <= 80);
    }
  }
}

TEST_CASE("An option that there is not is named, with the nearest one", "[cli][usage]") {
  const struct {
    std::vector<std::string> arguments;
    std::string said;
  } all[] = {{{"--nope"}, "'--nope' is no option of `berth`"},
             {{"--hepl"}, "did you mean '--help'?"},
             {{"-x"}, "'-x' is no option of `berth`"},
             {{"--nope", "plan", "x"}, "'--nope' is no option of `berth`"},
             {{"plan", "--nope"}, "'--nope' is no option of `berth plan`"},
             {{"plan", "x", "--sede", "3"}, "did you mean '--seed'?"},
             {{"show", "x", "--svgg=y"}, "'--svgg=y' is no option of `berth show`: did you mean"},
             {{"import", "x", "--nope"}, "'--nope' is no option of `berth import`"}};
  for (const auto& [arguments, said] : all) {
    const Ran ran = run_berth(arguments);
    INFO(ran.err);
    CHECK(ran.code == 2);
    CHECK_THAT(ran.err, Contains(said));
    CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
  }
}

TEST_CASE("Texts are broken within their width", "[cli][usage]") {
  using berth::cli::reflow;
  CHECK(reflow("one two\nthree four five", 10) == "one two\nthree four\nfive\n");
  CHECK(reflow("what   it means in\n       words", 20) == "what   it means in\n       words\n");
  CHECK(reflow("what   it means\n       in words", 18) == "what   it means in\n       words\n");
  CHECK(reflow("Example:\n  berth plan a.trace -o a.plan", 22) ==
        "Example:\n  berth plan a.trace \\\n      -o a.plan\n");
}

TEST_CASE("A table fits 80 columns, with nothing lost but words that are longer", "[cli][output]") {
  using berth::cli::Table;
  Table table({{"allocator", Table::Align::kLeft},
               {"largest reserved peak"},
               {"hits from the fourth step"},
               {"number of driver calls"},
               {"how it was found", Table::Align::kLeft}});
  table.add({"caching-model", "1,234,567,890", "100.00 %", "123,456",
             "replayed over the run as it was and the repeated one"});
  const std::string text = table.to_string();
  INFO(text);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
  for (const char* word : {"largest", "reserved", "fourth", "driver", "repeated", "as", "123,456"})
    CHECK_THAT(text, Contains(word));
  CHECK_THAT(text, !Contains("…"));
}

TEST_CASE("No command at all is wrong usage", "[cli][usage]") {
  const Ran ran = run_berth({});
  REQUIRE(ran.code == 2);
  REQUIRE(ran.out.empty());
  REQUIRE_THAT(ran.err, StartsWith("berth: error: "));
}

TEST_CASE("An unknown command names the nearest one", "[cli][usage]") {
  const Ran ran = run_berth({"plna", "x"});
  REQUIRE(ran.code == 2);
  REQUIRE_THAT(ran.err, Contains("'plna' is no command: did you mean 'plan'?"));
}

TEST_CASE("A command that is like none lists those there are", "[cli][usage]") {
  const Ran ran = run_berth({"zzzzzzzzzz"});
  REQUIRE(ran.code == 2);
  REQUIRE_THAT(ran.err, Contains("there is record, import, doctor, plan, graph, schedule, show, "
                                 "verify, replay, dry-run, help"));
  REQUIRE_THAT(ran.err, !Contains("did you mean"));
}

TEST_CASE("An unknown topic of help is wrong usage", "[cli][usage]") {
  const Ran ran = run_berth({"help", "setings"});
  REQUIRE(ran.code == 2);
  REQUIRE_THAT(ran.err, Contains("did you mean 'settings'?"));
}

TEST_CASE("Wrong arguments are one line that says where to look", "[cli][usage]") {
  const std::vector<std::vector<std::string>> wrong = {
      {"plan"},
      {"plan", "a", "b"},
      {"plan", "a", "--nonsense"},
      {"plan", "a", "--seed", "many"},
      {"plan", "a", "--seed", "-1"},
      {"plan", "a", "--seed", "18446744073709551616"},
      {"plan", "a", "--iterations", "1.5"},
      {"replay", "a", "--seed", "-1"},
      {"plan", "a", "--time-limit", "0"},
      {"plan", "a", "--time-limit", "nan"},
      {"plan", "a", "--engine", "magic"},
      {"plan", "a", "--threads", "5000"},
      {"show"},
      {"verify"},
      {"replay"},
      {"record", "--record", "everything", "--", "true"},
  };
  for (const auto& arguments : wrong) {
    const Ran ran = run_berth(arguments);
    INFO(arguments[0] << " " << (arguments.size() > 2 ? arguments[2] : "") << ": " << ran.err);
    REQUIRE(ran.code == 2);
    REQUIRE(ran.out.empty());
    REQUIRE_THAT(ran.err, StartsWith("berth: error: "));
    REQUIRE_THAT(ran.err, Contains("berth " + arguments[0] + " --help"));
    REQUIRE(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
  }
}

TEST_CASE("A number out of range is told with its range", "[cli][usage]") {
  const Ran ran = run_berth({"plan", "a", "--seed", "-1"});
  REQUIRE_THAT(ran.err, Contains("--seed: '-1' is no whole number from 0 to 18446744073709551615"));
}

TEST_CASE("Help on settings lists every variable with field and values", "[cli][usage]") {
  const Ran ran = run_berth({"help", "settings"});
  REQUIRE(ran.code == 0);
  for (const char* variable :
       {"BERTH_MODE", "BERTH_TRACE", "BERTH_PLAN", "BERTH_RECORD", "BERTH_CHECK", "BERTH_STATS",
        "BERTH_TAG", "BERTH_PLAN_TIME_LIMIT", "BERTH_MEMORY_LIMIT", "BERTH_MEMORY", "BERTH_HANDLE",
        "BERTH_VERBOSE", "BERTH_SCHEDULE", "BERTH_ALGORITHMS", "BERTH_BUDGET", "BERTH_TIME_BUDGET",
        "BERTH_HOST_MEMORY"})
    REQUIRE_THAT(ran.out, Contains(variable));
  REQUIRE_THAT(ran.out, Contains("Config::mode"));
  REQUIRE_THAT(ran.out, Contains("learn, record, serve, off"));
  REQUIRE_THAT(ran.out, Contains("berth record --memory-limit"));

  const nlohmann::json json = run_berth_json({"help", "settings"});
  REQUIRE(json["settings"].size() == 14);
  for (const auto& setting : json["settings"]) {
    for (const char* name : {"variable", "option", "field", "legal_values", "default", "meaning"})
      REQUIRE(setting.contains(name));
  }
}
