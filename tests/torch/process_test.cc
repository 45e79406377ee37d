// What happens once in a process: start, exit, fork, settings.
#include "csrc/trace/file.h"
#include "tests/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/torch/probe.h"

#include <filesystem>
#include <fstream>
#include <iterator>

using berth::test::probe;
using berth::test::probe_auto;
using berth::test::TemporaryFolder;
using Catch::Matchers::Contains;

TEST_CASE("A program without a call of install runs as before", "[process]") {
  const auto run = probe("installed", {{"BERTH_MODE", "learn"}});
  REQUIRE(run.out == "0\n0\n");
  REQUIRE(run.exit_code == 0);
}

TEST_CASE("The automatic install does nothing unless BERTH_MODE is set", "[process]") {
  REQUIRE(probe_auto("installed").out == "0\n0\n");
  REQUIRE(probe_auto("installed", {{"BERTH_MODE", "off"}}).out == "0\n0\n");
  REQUIRE(probe_auto("installed", {{"BERTH_MODE", "learn"}}).out == "1\n1\n");
}

TEST_CASE("Mode off leaves libtorch's own allocator", "[process]") {
  const auto run = probe("outlive", {{"BERTH_MODE", "off"}});
  REQUIRE(run.out == "after main: 1000\n");
  REQUIRE(run.exit_code == 0);
}

TEST_CASE("Unknown settings are named with the legal ones", "[process][errors]") {
  for (const auto& run : {probe("outlive", {{"BERTH_MODE", "srve"}}),
                          probe_auto("installed", {{"BERTH_MODE", "srve"}})}) {
    REQUIRE_THAT(run.err, Contains("BERTH_MODE") && Contains("srve") && Contains("learn") &&
                              Contains("record") && Contains("serve") && Contains("off"));
    REQUIRE(run.exit_code != 0);
  }
  REQUIRE(probe_auto("installed", {{"BERTH_MODE", "srve"}}).exit_code == 2);
}

TEST_CASE("A plan that is none ends the program at the install with its name",
          "[process][errors]") {
  const TemporaryFolder folder;
  std::ofstream(folder / "broken.plan") << "no plan";
  const auto run =
      probe_auto("installed", {{"BERTH_MODE", "serve"}, {"BERTH_PLAN", folder / "broken.plan"}});
  REQUIRE(run.exit_code == 3);
  REQUIRE_THAT(run.err, Contains("broken.plan"));
}

TEST_CASE("A libtorch of another version than berth was built for is refused by name",
          "[process][errors]") {
  const std::map<std::string, std::string> other = {{"BERTH_MODE", "learn"},
                                                    {"LD_PRELOAD", BERTH_TEST_OTHER_LIBTORCH}};
  const auto run = probe_auto("installed", other);
  REQUIRE(run.exit_code == 2);
  REQUIRE_THAT(run.err, Contains("built for libtorch 2.") && Contains(", 2.15 is loaded"));
  REQUIRE(probe("outlive", other).exit_code != 0);
}

TEST_CASE("Blocks older than berth go back to the allocator that made them", "[process]") {
  const auto run = probe("older-blocks");
  REQUIRE(run.err == "");
  REQUIRE(run.exit_code == 0);
}

TEST_CASE("Tensors outlive main in every mode", "[process]") {
  for (const char* mode : {"learn", "record"}) {
    const TemporaryFolder folder;
    const auto run = probe("outlive", {{"BERTH_MODE", mode},
                                       {"BERTH_TRACE", folder / "run.trace"},
                                       {"BERTH_STATS", folder / "stats.json"}});
    CAPTURE(mode, run.err);
    REQUIRE(run.exit_code == 0);
    REQUIRE(run.out == "after main: 1000\n");
    std::ifstream stats(folder / "stats.json");
    REQUIRE_THAT(std::string(std::istreambuf_iterator<char>(stats), {}), Contains("\"requests\""));
  }
}

TEST_CASE("A trace is closed at exit", "[process]") {
  const TemporaryFolder folder;
  const auto run =
      probe("outlive", {{"BERTH_MODE", "record"}, {"BERTH_TRACE", folder / "run.trace"}});
  REQUIRE(run.exit_code == 0);
  const berth::Trace trace = berth::read_trace(folder / "run.trace");
  REQUIRE(trace.closed);
  REQUIRE(trace.program.device_name == "cpu");
  REQUIRE(trace.program.torch_version != "");
  REQUIRE(trace.alignment == 64);
  REQUIRE(trace.lanes.at(0).key == 0);
}

TEST_CASE("A forked child computes and leaves its parent alone", "[process][fork]") {
  for (const char* mode : {"learn", "record"}) {
    const TemporaryFolder folder;
    const auto run = probe("fork", {{"BERTH_MODE", mode}, {"BERTH_TRACE", folder / "run.trace"}});
    CAPTURE(mode, run.err);
    REQUIRE(run.err == "");
    REQUIRE(run.exit_code == 0);
  }
}

TEST_CASE("A range of an optimizer ends a step unless the program marks steps itself",
          "[process][steps]") {
  REQUIRE(probe("optimizer-ranges").out == "5\n");
  // The first range came before the program's first mark.
  REQUIRE(probe("own-marks").out == "6\n");
}

TEST_CASE("Ranges of the program are in its trace", "[process][steps]") {
  const TemporaryFolder folder;
  const auto run =
      probe("optimizer-ranges", {{"BERTH_MODE", "record"}, {"BERTH_TRACE", folder / "run.trace"}});
  REQUIRE(run.exit_code == 0);
  const berth::Trace trace = berth::read_trace(folder / "run.trace");
  int optimizer = 0, evaluation = 0, ends = 0, marks = 0;
  for (const auto& entry : trace.entries) {
    if (const auto* begin = std::get_if<berth::trace::RangeBegin>(&entry.event)) {
      optimizer += trace.name(begin->name) == "Optimizer.step#SGD.step" &&
                   begin->kind == berth::trace::RangeKind::kPhase;
      evaluation +=
          trace.name(begin->name) == "evaluation" && begin->kind == berth::trace::RangeKind::kUser;
    }
    ends += std::holds_alternative<berth::trace::RangeEnd>(entry.event);
    marks += std::holds_alternative<berth::trace::StepMark>(entry.event);
  }
  REQUIRE(optimizer == 5);
  REQUIRE(evaluation == 5);
  REQUIRE(ends == 10);
  REQUIRE(marks == 5);
}
