#include "tests/catch.h"
#include "tests/cli/program.h"

using namespace berth::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

TEST_CASE("The version is one line on standard output", "[cli][usage]") {
  const Ran ran = run_berth({"--version"});
  REQUIRE(ran.code == 0);
  REQUIRE_THAT(ran.out, StartsWith("berth 0."));
  REQUIRE(ran.err.empty());
}

TEST_CASE("Help names every command and fits a terminal of 100 columns", "[cli][usage]") {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--help"}, {"-h"}, {"help"}}) {
    const Ran ran = run_berth(arguments);
    REQUIRE(ran.code == 0);
    REQUIRE(ran.err.empty());
    for (const char* command : {"record", "plan", "graph", "schedule", "show", "verify", "replay", "help"})
      REQUIRE_THAT(ran.out, Contains(command));
  }
}

TEST_CASE("Every command explains itself with an example", "[cli][usage]") {
  for (const char* command : {"record", "plan", "graph", "schedule", "show", "verify", "replay", "help"}) {
    INFO(command);
    const Ran asked = run_berth({command, "--help"});
    REQUIRE(asked.code == 0);
    REQUIRE_THAT(asked.out, Contains("Example:"));
    REQUIRE_THAT(asked.out, Contains(std::string("berth ") + command));
    std::size_t line = 0;
    for (const char c : asked.out) {
      line = c == '\n' ? 0 : line + 1;
      REQUIRE(line <= 100);
    }
    const Ran helped = run_berth({"help", command});
    REQUIRE(helped.code == 0);
    REQUIRE(helped.out == asked.out);
  }
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
  REQUIRE_THAT(ran.err, Contains("there is record, import, doctor, plan, graph, schedule, show, verify, replay, dry-run, help"));
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
        "BERTH_TAG", "BERTH_PLAN_TIME_LIMIT", "BERTH_MEMORY_LIMIT", "BERTH_VERBOSE",
        "BERTH_SCHEDULE", "BERTH_ALGORITHMS"})
    REQUIRE_THAT(ran.out, Contains(variable));
  REQUIRE_THAT(ran.out, Contains("Config::mode"));
  REQUIRE_THAT(ran.out, Contains("learn, record, serve, off"));
  REQUIRE_THAT(ran.out, Contains("berth record --memory-limit"));

  const nlohmann::json json = run_berth_json({"help", "settings"});
  REQUIRE(json["settings"].size() == 12);
  for (const auto& setting : json["settings"]) {
    for (const char* name : {"variable", "option", "field", "legal_values", "default", "meaning"})
      REQUIRE(setting.contains(name));
  }
}
