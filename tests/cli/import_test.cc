#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/pickled.h"
#include "tests/support/temporary_folder.h"

using namespace berth::test;
using Catch::Matchers::Contains;

namespace {

// Two devices with a history each.
std::string two_devices() {
  using namespace pickled;
  const auto entry = [](const char* action, std::int64_t addr) {
    return dict({{"action", text(action)}, {"addr", number(addr)}, {"size", number(1000)}});
  };
  const std::string history = list({entry("alloc", 4096), entry("free_completed", 4096)});
  return file(dict({{"segments", list({})}, {"device_traces", list({history, history})}}));
}

}  // namespace

#ifdef BERTH_TEST_ZLIB

TEST_CASE("A memory snapshot becomes a trace that is planned, shown and replayed",
          "[cli][import]") {
  const TemporaryFolder folder;
  const auto json =
      run_berth_json({"import", BERTH_SNAPSHOTS "/cpp.pickle.gz", "-o", folder / "run.trace"});
  REQUIRE(json["requests"] == 153);
  REQUIRE(json["steps"] == 6);
  REQUIRE(json["step_found"] == true);
  REQUIRE(json["reserved_peak_bytes"] == 56623104);
  REQUIRE(json["cut"] == false);
  REQUIRE(json["notes"].empty());
  REQUIRE(run_berth({"plan", folder / "run.trace", "-o", folder / "run.plan"}).code == 0);
  REQUIRE(run_berth({"verify", folder / "run.plan", folder / "run.trace"}).code == 0);
  REQUIRE_THAT(run_berth({"show", folder / "run.trace"}).out, Contains("6 marked"));
  REQUIRE(run_berth_json({"replay", folder / "run.trace", "--allocator",
                          "planned"})["live_peak_bytes"] == 32785408);
}

TEST_CASE("Importing says in words where the history is cut", "[cli][import]") {
  const TemporaryFolder folder;
  const Ran ran =
      run_berth({"import", BERTH_SNAPSHOTS "/cut.pickle.gz", "-o", folder / "run.trace"});
  REQUIRE(ran.code == 0);
  REQUIRE_THAT(ran.out, Contains("the history is cut: 21 blocks"));
  REQUIRE_THAT(run_berth({"show", folder / "run.trace"}).out, Contains("seen 2 times"));
}

TEST_CASE("Commands that want a trace say of a snapshot that it is to be imported",
          "[cli][import]") {
  for (const char* command : {"plan", "show", "replay"}) {
    const Ran ran = run_berth({command, BERTH_SNAPSHOTS "/cpp.pickle.gz"});
    REQUIRE(ran.code == 3);
    REQUIRE_THAT(ran.err, Contains("berth import") && Contains("-o x.trace"));
  }
}

#endif

TEST_CASE("Of two devices with a history one is chosen by --device", "[cli][import]") {
  const TemporaryFolder folder;
  write_text(folder / "two.pickle", two_devices());
  const Ran none = run_berth({"import", folder / "two.pickle", "-o", folder / "run.trace"});
  REQUIRE(none.code == 2);
  REQUIRE_THAT(none.err, Contains("0 (1 requests), 1 (1 requests)"));
  REQUIRE_FALSE(exists(folder / "run.trace"));
  const auto json = run_berth_json(
      {"import", folder / "two.pickle", "-o", folder / "run.trace", "--device", "1"});
  REQUIRE(json["device"] == 1);
  REQUIRE(json["devices"].size() == 2);
}

TEST_CASE("What is no snapshot leaves no file and says what is wrong", "[cli][import]") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& content, int code) {
    write_text(folder / "x.pickle", content);
    const Ran ran = run_berth({"import", folder / "x.pickle", "-o", folder / "run.trace"});
    REQUIRE(ran.code == code);
    REQUIRE(ran.out.empty());
    REQUIRE_FALSE(exists(folder / "run.trace"));
    return ran.err;
  };
  REQUIRE_THAT(refused("cos\nsystem\n(S'touch ran'\ntR.", 3), Contains("is no pickle"));
  REQUIRE_THAT(refused("\x80\x02"
                       "cos\nsystem\n(S'touch ran'\ntR.",
                       3),
               Contains("would call 'os.system'"));
  REQUIRE_THAT(refused("\x80\x04\x95\xff\xff\xff\xff\xff\x03", 3), Contains("damaged at byte 2"));
  REQUIRE_THAT(refused("PK\x03\x04", 3), Contains("is no pickle"));
  REQUIRE_THAT(refused("", 3), Contains("x.pickle"));
  REQUIRE_THAT(refused(pickled::file("N"), 3), Contains("it holds no dictionary"));
  REQUIRE(run_berth({"import", folder / "x.pickle"}).code == 2);
  REQUIRE(run_berth({"import", folder / "nowhere.pickle", "-o", folder / "run.trace"}).code == 3);
  REQUIRE(run_berth({"import", folder / "x.pickle", "-o", folder / "none/run.trace"}).code == 2);
}
