#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/temporary_folder.h"

#include <csignal>

using namespace berth::test;
using Catch::Matchers::Contains;

TEST_CASE("Recording a program writes its trace and says what it holds", "[cli][record]") {
  const TemporaryFolder folder;
  const Ran ran =
      run_berth({"record", "-o", folder / "run.trace", "--", recorded_program(), "steps=5"});
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  REQUIRE(ran.out.empty());  // standard output is the program's
  REQUIRE_THAT(ran.err, Contains("100 requests, 5 steps marked"));
  REQUIRE_THAT(ran.err, Contains("the step repeats: 20 requests"));
  const nlohmann::json json = run_berth_json({"show", folder / "run.trace"});
  REQUIRE(json["requests"] == 100);
  REQUIRE(json["steps"]["marked"] == 5);
}

TEST_CASE("Recorded then planned then verified", "[cli][record]") {
  const TemporaryFolder folder;
  REQUIRE(run_berth({"record", "-o", folder / "run.trace", "--", recorded_program()}).code == 0);
  REQUIRE(run_berth({"plan", folder / "run.trace", "-o", folder / "run.plan"}).code == 0);
  REQUIRE(run_berth({"verify", folder / "run.plan", folder / "run.trace"}).code == 0);
}

TEST_CASE("A relative name is meant from where berth runs", "[cli][record]") {
  const TemporaryFolder folder;
  RunOptions options;
  options.folder = folder.path();
  REQUIRE(run_berth({"record", "-o", "run.trace", "--", recorded_program()}, options).code == 0);
  REQUIRE(exists(folder / "run.trace"));
}

TEST_CASE("The number of the process may stand in the name of the trace", "[cli][record]") {
  const TemporaryFolder folder;
  const Ran ran = run_berth({"record", "-o", folder / "run-{pid}.trace", "--", recorded_program()});
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  REQUIRE_THAT(ran.err, Contains("80 requests"));
}

TEST_CASE("What stands after the mark goes to the program as it is", "[cli][record]") {
  const TemporaryFolder folder;
  const Ran ran = run_berth({"record", "-o", folder / "run.trace", "--", recorded_program(),
                             "echo=[a,b]", "--help", "-o", "--", "echo=last"});
  REQUIRE(ran.code == 0);
  REQUIRE(ran.out == "[a,b]\nlast\n");
}

TEST_CASE("The exit code of the program is passed on", "[cli][record]") {
  const TemporaryFolder folder;
  const Ran ran =
      run_berth({"record", "-o", folder / "run.trace", "--", recorded_program(), "exit=42"});
  REQUIRE(ran.code == 42);
  REQUIRE_THAT(ran.err, Contains("80 requests"));
}

TEST_CASE("A signal that ends the program is told by the exit code", "[cli][record]") {
  const TemporaryFolder folder;
  const Ran ran = run_berth({"record", "-o", folder / "run.trace", "--", recorded_program(),
                             "raise=" + std::to_string(SIGKILL)});
  REQUIRE(ran.code == 128 + SIGKILL);
  REQUIRE_THAT(ran.err, Contains("was ended by signal 9"));
}

TEST_CASE("A signal to berth alone reaches the program", "[cli][record]") {
  const TemporaryFolder folder;
  RunOptions options;
  options.signal = SIGTERM;
  options.when_exists = folder / "ready";
  const Ran ran = run_berth({"record", "-o", folder / "run.trace", "--", recorded_program(),
                             "wait=" + (folder / "ready")},
                            options);
  INFO(ran.err);
  REQUIRE(ran.code == 7);
  REQUIRE_THAT(ran.err, Contains("80 requests"));
}

TEST_CASE("A program that is not linked to berth wrote no trace", "[cli][record]") {
  const TemporaryFolder folder;
  const Ran ran = run_berth({"record", "-o", folder / "run.trace", "--", "true"});
  REQUIRE(ran.code == 1);
  REQUIRE_THAT(ran.err, Contains("it is not linked to berth"));
}

TEST_CASE("A trace that cannot be written is told before the program runs", "[cli][record]") {
  const TemporaryFolder folder;
  const auto refuse = [&](const std::string& path, int code, const std::string& reason) {
    const Ran ran = run_berth({"record", "-o", path, "--", recorded_program(), "echo=it ran"});
    INFO(ran.err);
    REQUIRE(ran.code == code);
    REQUIRE(ran.out.empty());
    REQUIRE_THAT(ran.err, Contains(path) && Contains(reason));
    REQUIRE_THAT(ran.err, !Contains("linked"));
    REQUIRE(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
  };
  refuse(folder / "none/x.trace", 2, "there is no folder '" + folder / "none'");
  refuse(folder / "none/{pid}.trace", 2, "there is no folder");
  refuse(folder.path(), 2, "it is a folder");
  refuse("/dev/null", 2, "it is no regular file");
  refuse("/proc/x.trace", 4, "No such file or directory");
}

TEST_CASE("An old trace is not taken for a new one", "[cli][record]") {
  const TemporaryFolder folder;
  REQUIRE(run_berth({"record", "-o", folder / "run.trace", "--", recorded_program()}).code == 0);
  const Ran ran = run_berth({"record", "-o", folder / "run.trace", "--", "true"});
  REQUIRE(ran.code == 1);
  REQUIRE_THAT(ran.err, Contains("wrote no trace"));
}

TEST_CASE("A program that allocates nothing has a trace of nothing", "[cli][record]") {
  const TemporaryFolder folder;
  const Ran ran =
      run_berth({"record", "-o", folder / "run.trace", "--", recorded_program(), "steps=0"});
  REQUIRE(ran.code == 1);
  REQUIRE_THAT(ran.err, Contains("holds no request"));
}

TEST_CASE("A program that cannot be run is a system failure", "[cli][record]") {
  const TemporaryFolder folder;
  const Ran ran = run_berth({"record", "-o", folder / "x.trace", "--", "./no-such-program"});
  REQUIRE(ran.code == 4);
  REQUIRE_THAT(ran.err, Contains("cannot run './no-such-program': No such file"));
}

TEST_CASE("Recording nothing is wrong usage", "[cli][record]") {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"record"}, {"record", "--"}}) {
    const Ran ran = run_berth(arguments);
    REQUIRE(ran.code == 2);
    REQUIRE_THAT(ran.err, Contains("write it after --"));
  }
}

TEST_CASE("Options of record reach the program as variables", "[cli][record]") {
  const TemporaryFolder folder;
  const Ran ran = run_berth(
      {"record", "--operators", "--check", "full", "--tag", "mine", "--memory-limit", "1GiB",
       "--verbose", "--stats", folder / "s.json", "-o", folder / "run.trace", "--", "sh", "-c",
       "echo $BERTH_MODE $BERTH_RECORD $BERTH_CHECK $BERTH_TAG $BERTH_VERBOSE "
       "$BERTH_MEMORY_LIMIT; basename $BERTH_TRACE $BERTH_STATS"});
  REQUIRE(ran.code == 1);
  REQUIRE_THAT(ran.out, Contains("record operators full mine 1 1GiB\n"));
}
