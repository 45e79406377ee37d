#include "csrc/runtime/settings.h"

#include "csrc/device/host_device.h"
#include "csrc/runtime/allocator.h"
#include "tests/catch.h"

#include <berth/error.h>
#include <berth/warnings.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

using namespace berth;

namespace {

// Sets a variable for the time of a scope.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name_.c_str()); }

 private:
  const std::string name_;
};

}  // namespace

TEST_CASE("Without variables the mode is learn", "[settings]") {
  const Config config = Config::from_environment();
  REQUIRE(config.mode == Mode::kLearn);
  REQUIRE(config.record == RecordDetail::kRequests);
}

TEST_CASE("Every variable reaches its field", "[settings]") {
  const Variable mode("BERTH_MODE", "serve"), plan("BERTH_PLAN", "a.plan"),
      trace("BERTH_TRACE", "a.trace"), record("BERTH_RECORD", "operators"),
      check("BERTH_CHECK", "full"), stats("BERTH_STATS", "s.json"), tag("BERTH_TAG", "nightly"),
      verbose("BERTH_VERBOSE", "1"), limit("BERTH_PLAN_TIME_LIMIT", "0.5"),
      memory("BERTH_MEMORY_LIMIT", "6GiB"), schedule("BERTH_SCHEDULE", "a.schedule"),
      algorithms("BERTH_ALGORITHMS", "a.algorithms"), kind("BERTH_MEMORY", "plain"),
      handle("BERTH_HANDLE", "32MiB");
  const Config config = Config::from_environment();
  REQUIRE(config.mode == Mode::kServe);
  REQUIRE(config.plan == "a.plan");
  REQUIRE(config.trace == "a.trace");
  REQUIRE(config.record == RecordDetail::kOperators);
  REQUIRE(config.check == CheckLevel::kFull);
  REQUIRE(config.stats == "s.json");
  REQUIRE(config.tag == "nightly");
  REQUIRE(config.verbose);
  REQUIRE(config.plan_time_limit_seconds == 0.5);
  REQUIRE(config.memory_limit == Bytes{6} << 30);
  REQUIRE(config.schedule == "a.schedule");
  REQUIRE(config.algorithms == "a.algorithms");
  REQUIRE(config.memory == MemoryKind::kPlain);
  REQUIRE(config.handle == Bytes{32} << 20);
  REQUIRE(settings().size() == 14);
}

TEST_CASE("An unknown value is refused with the legal ones", "[settings]") {
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {"BERTH_MODE", "lern"},           {"BERTH_MODE", ""},
      {"BERTH_RECORD", "all"},          {"BERTH_CHECK", "1"},
      {"BERTH_PLAN_TIME_LIMIT", "2s"},  {"BERTH_PLAN_TIME_LIMIT", "-1"},
      {"BERTH_PLAN_TIME_LIMIT", "nan"}, {"BERTH_MEMORY_LIMIT", "lots"},
      {"BERTH_VERBOSE", "yes"},
  };
  for (const auto& [name, value] : wrong) {
    const Variable variable(name, value);
    REQUIRE_THROWS_WITH(Config::from_environment(),
                        Catch::Matchers::Contains(name) &&
                            Catch::Matchers::Contains(std::string("'") + value + "'") &&
                            Catch::Matchers::Contains("legal are"));
  }
}

TEST_CASE("A file name with a word that is none is refused at the start", "[settings]") {
  const std::string variable =
      GENERATE("BERTH_TRACE", "BERTH_PLAN", "BERTH_STATS", "BERTH_SCHEDULE", "BERTH_ALGORITHMS");
  const auto [name, word] = GENERATE(table<std::string, std::string>(
      {{"run-{foo}.json", "{foo}"}, {"{rank}-{pid", "{pid"}, {"{}{device}", "{}"}}));
  const Variable wrong(variable, name);
  CHECK_THROWS_WITH(Config::from_environment(), variable + " is '" + name + "' and holds " + word +
                                                    ", legal are {rank}, {device} and {pid}");
}

TEST_CASE("An allocator whose statistics have a name that is none is not made", "[settings]") {
  const auto device = make_host_device(Bytes{64} << 20);
  Allocator::Options options;
  options.config.stats = "run-{foo}.json";
  CHECK_THROWS_WITH(Allocator(*device, options), Catch::Matchers::Contains("{foo}"));
}

TEST_CASE("Serving without a plan is refused", "[settings]") {
  const Variable mode("BERTH_MODE", "serve");
  REQUIRE_THROWS_WITH(Config::from_environment(),
                      Catch::Matchers::Contains("BERTH_PLAN names no plan"));
}

TEST_CASE("A misspelt variable is warned of by name", "[settings]") {
  std::vector<std::string> warnings;
  set_warning_sink([&](std::string_view name, const std::string& text) {
    warnings.push_back(std::string(name) + text);
  });
  const Variable variable("BERTH_MOD", "serve");
  (void)Config::from_environment();
  set_warning_sink({});
  REQUIRE(warnings.size() == 1);
  REQUIRE_THAT(warnings[0],
               Catch::Matchers::Contains("BERTH_MOD ") && Catch::Matchers::Contains("BERTH_MODE"));
}

TEST_CASE("File names hold rank and device and process", "[settings]") {
  trace::Program program;
  program.rank = 3;
  REQUIRE(expand_file_name("r{rank}-d{device}.plan", program, 1) == "r3-d1.plan");
  REQUIRE(expand_file_name("plain", program, 1) == "plain");
  REQUIRE_THROWS_WITH(expand_file_name("{host}.plan", program, 0),
                      Catch::Matchers::Contains("{host}"));
  REQUIRE_THROWS_WITH(expand_file_name("{rank.plan", program, 0),
                      Catch::Matchers::Contains("{rank.plan"));
}
