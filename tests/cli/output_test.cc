#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/temporary_folder.h"

using namespace berth::test;
using Catch::Matchers::Contains;

namespace {

// Commands that print, each on good input.
std::vector<std::vector<std::string>> printing(const TemporaryFolder& folder) {
  write_text(folder / "run.csv", events_csv(4));
  write_text(folder / "rows.csv", "id,lower,upper,size\na,0,4,100\nb,2,6,50\n");
  const Ran planned = run_berth({"plan", folder / "run.csv", "-o", folder / "run.plan"});
  INFO(planned.err);
  REQUIRE(planned.code == 0);
  return {
      {"--version"},
      {"--help"},
      {"help", "settings"},
      {"plan", folder / "run.csv"},
      {"plan", folder / "rows.csv", "--json"},
      {"show", folder / "run.csv"},
      {"show", folder / "run.plan", "--json"},
      {"verify", folder / "run.plan"},
      {"replay", folder / "run.csv", "--allocator", "pool"},
  };
}

}  // namespace

TEST_CASE("A full standard output is a system failure", "[cli][output]") {
  const TemporaryFolder folder;
  for (const auto& arguments : printing(folder)) {
    RunOptions options;
    options.output = Stream::kFull;
    const Ran ran = run_berth(arguments, options);
    INFO(arguments[0]);
    REQUIRE(ran.code == 4);
    REQUIRE_THAT(ran.err, Contains("berth: error: cannot write to standard output: No space left"));
  }
}

TEST_CASE("A closed standard output is a system failure and no file is written in its place",
          "[cli][output]") {
  const TemporaryFolder folder;
  for (const auto& arguments : printing(folder)) {
    const std::string before = read_text(folder / "run.plan");
    RunOptions options;
    options.output = Stream::kClosed;
    const Ran ran = run_berth(arguments, options);
    INFO(arguments[0] << ": " << ran.err);
    REQUIRE(ran.code == 4);
    REQUIRE_THAT(ran.err, Contains("cannot write to standard output"));
    REQUIRE(read_text(folder / "run.plan") == before);
  }
}

TEST_CASE("A plan written while standard output is closed holds nothing but the plan",
          "[cli][output]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  RunOptions options;
  options.output = Stream::kClosed;
  REQUIRE(run_berth({"plan", folder / "run.csv", "-o", folder / "out.plan"}, options).code == 4);
  REQUIRE(run_berth({"verify", folder / "out.plan"}).code == 0);
}

TEST_CASE("Progress is written on a terminal and wiped from it", "[cli][output]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  RunOptions options;
  options.error = Stream::kTerminal;
  const Ran shown = run_berth({"replay", folder / "run.csv", "--allocator", "pool"}, options);
  REQUIRE(shown.code == 0);
  REQUIRE_THAT(shown.err, Contains("replaying: pool"));
  REQUIRE_THAT(shown.err, Contains("\r\033[K"));
  REQUIRE_THAT(shown.err, Catch::Matchers::EndsWith("\033[K"));

  const Ran silent = run_berth({"replay", folder / "run.csv", "--allocator", "pool"});
  REQUIRE(silent.code == 0);
  REQUIRE(silent.err.empty());
}

TEST_CASE("Planning shows bound and gap on a terminal only", "[cli][output]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  RunOptions options;
  options.error = Stream::kTerminal;
  const Ran shown = run_berth({"plan", folder / "run.csv"}, options);
  REQUIRE(shown.code == 0);
  REQUIRE_THAT(shown.err, Contains("planning: best"));
  REQUIRE_THAT(shown.err, Contains("gap"));
  REQUIRE_THAT(shown.out, !Contains("planning"));
  REQUIRE(run_berth({"plan", folder / "run.csv"}).err.empty());
}

TEST_CASE("Control characters of a file's name do not reach the terminal", "[cli][output]") {
  const Ran ran = run_berth({"show", "no\033[2Jsuch"});
  REQUIRE(ran.code == 3);
  REQUIRE_THAT(ran.err, !Contains("\033"));
}

TEST_CASE("An output may be a device that is written to and not replaced", "[cli][output]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  REQUIRE(run_berth({"plan", folder / "run.csv", "-o", "/dev/null"}).code == 0);
  const Ran full = run_berth({"plan", folder / "run.csv", "-o", "/dev/full"});
  REQUIRE(full.code == 4);
  REQUIRE_THAT(full.err, Contains("cannot write '/dev/full': No space left"));
}

TEST_CASE("An output that cannot be is refused before work is done for it", "[cli][output]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  write_text(folder / "rows.csv", "id,lower,upper,size\na,0,10,300\n");
  const Ran is_folder = run_berth({"plan", folder / "rows.csv", "-o", folder.path()});
  REQUIRE(is_folder.code == 2);
  REQUIRE_THAT(is_folder.err, Contains("it is a folder"));
  const Ran no_folder = run_berth({"plan", folder / "run.csv", "-o", folder / "none/x.plan"});
  REQUIRE(no_folder.code == 2);
  REQUIRE_THAT(no_folder.err, Contains("there is no folder"));
}
