// Training gives the same losses, bit for bit, in every mode.
#include "csrc/place/plan_step.h"
#include "csrc/plan/file.h"
#include "csrc/trace/file.h"
#include "csrc/trace/step.h"
#include "tests/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/torch/probe.h"

#include <nlohmann/json.hpp>

#include <fstream>

using berth::test::probe;
using berth::test::TemporaryFolder;

namespace {

const std::string& plain_losses() {
  static const std::string losses = probe("train", {{"BERTH_MODE", "off"}}).out;
  return losses;
}

nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

// Records `scenario`, plans its step into `plan`.
void record_and_plan(const char* scenario, const std::string& trace_path,
                     const std::string& plan_path) {
  const auto recorded = probe(scenario, {{"BERTH_MODE", "record"}, {"BERTH_TRACE", trace_path}});
  REQUIRE(recorded.err == "");
  REQUIRE(recorded.out == plain_losses());
  const berth::Trace trace = berth::read_trace(trace_path);
  std::string why_not;
  const auto step = berth::extract_step(trace, {}, &why_not);
  CAPTURE(why_not);
  REQUIRE(step.has_value());
  const berth::Plan plan =
      berth::plan_step(*step, trace, trace.alignment, {.time_limit_seconds = 1});
  REQUIRE(plan.arena_bytes == plan.lower_bound);
  berth::write_plan(plan_path, plan);
}

}  // namespace

TEST_CASE("Losses without berth are real numbers", "[training]") {
  REQUIRE(plain_losses().size() == 80 * 9);
  REQUIRE(plain_losses().find("7fc0") == std::string::npos);
}

TEST_CASE("Learning in place changes no loss and serves the plan at last", "[training]") {
  const TemporaryFolder folder;
  const auto run = probe("train", {{"BERTH_MODE", "learn"},
                                   {"BERTH_CHECK", "full"},
                                   {"BERTH_PLAN_TIME_LIMIT", "0.1"},
                                   {"BERTH_STATS", folder / "stats.json"}});
  REQUIRE(run.err == "");
  REQUIRE(run.out == plain_losses());
  const auto stats = read_json(folder / "stats.json");
  REQUIRE(stats["plans_learned"] >= 1);
  REQUIRE(stats["hits"] > 0);
}

TEST_CASE("A plan recorded in one run serves every request of the next", "[training]") {
  const TemporaryFolder folder;
  record_and_plan("train", folder / "run.trace", folder / "run.plan");
  const auto run = probe("train", {{"BERTH_MODE", "serve"},
                                   {"BERTH_CHECK", "full"},
                                   {"BERTH_PLAN", folder / "run.plan"},
                                   {"BERTH_STATS", folder / "stats.json"}});
  REQUIRE(run.err == "");
  REQUIRE(run.out == plain_losses());
  const auto stats = read_json(folder / "stats.json");
  const double hits = stats["hits"], requests = stats["requests"];
  // All but the first step, whose residents and first gradients no step repeats.
  REQUIRE(hits > 0.9 * requests);
  REQUIRE(stats["arena"] == stats["arena_bound"]);
}

TEST_CASE("Steps that nobody marks are found and served", "[training][steps]") {
  const TemporaryFolder folder;
  record_and_plan("train-unmarked", folder / "run.trace", folder / "run.plan");
  const auto run = probe("train-unmarked", {{"BERTH_MODE", "serve"},
                                            {"BERTH_CHECK", "full"},
                                            {"BERTH_PLAN", folder / "run.plan"},
                                            {"BERTH_STATS", folder / "stats.json"}});
  REQUIRE(run.err == "");
  REQUIRE(run.out == plain_losses());
  const auto stats = read_json(folder / "stats.json");
  const double hits = stats["hits"], requests = stats["requests"];
  REQUIRE(hits > 0.9 * requests);
}
