// The training program of the benchmarks, with a sample or two a step, on made-up data.
#include "tests/catch.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_folder.h"

#include <nlohmann/json.hpp>

#include <fstream>

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

}  // namespace

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
