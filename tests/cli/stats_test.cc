// What `berth show` says of a run's statistics.

#include "csrc/core/bytes.h"
#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_folder.h"

#include <berth/stats.h>

#include <sstream>
#include <string>
#include <vector>

using namespace berth::test;
using berth::Miss;
using berth::Stats;
using Catch::Matchers::Contains;

namespace {

using Reason = Miss::Reason;

// What a person reads, in one line.
std::string shown(const Stats& stats) {
  const TemporaryFolder folder;
  write_text(folder / "run.json", stats.to_json() + "\n");
  const Ran ran = run_berth({"show", folder / "run.json"});
  REQUIRE(ran.code == 0);
  std::istringstream words(ran.out);
  std::string line;
  for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
  return line;
}

Stats stats_with(std::vector<Miss> misses) {
  Stats stats;
  stats.requests = 1000;
  stats.hits = 900;
  stats.misses_size = 100;
  stats.misses = std::move(misses);
  return stats;
}

}  // namespace

TEST_CASE("Statistics that a program wrote are shown with what missed and why", "[cli][show]") {
  const TemporaryFolder folder;
  const std::string file = folder / "run.json";
  const ProgramResult ran = run_program({recorded_program(), "steps=200", "odd=50"},
                                        {{"BERTH_STATS", file}, {"BERTH_PLAN_TIME_LIMIT", "0.01"}});
  REQUIRE(ran.exit_code == 0);
  const nlohmann::json json = run_berth_json({"show", file});
  REQUIRE(json["kind"] == "statistics");
  REQUIRE(json["steps"] == 200);
  REQUIRE(json["requests"] == 200 * 20);
  const Ran text = run_berth({"show", file});
  REQUIRE_THAT(text.out, Contains("statistics of 200 steps, 4,000 requests"));
  if (json["misses"].empty()) return;  // the last plan came with the last steps
  const nlohmann::json miss = json["misses"][0];
  REQUIRE(miss["reason"] == "size");
  REQUIRE(miss["position"] == 2);
  REQUIRE(miss["step_requests"] == 20);
  REQUIRE(miss["expected_bytes"] == 20000);
  REQUIRE(miss["came_bytes"] == 990000);
  REQUIRE_THAT(one_line(text.out),
               Contains("request 3 of 20 of the step: 966.8 KiB came, the plan expects 19.5 KiB"));
}

TEST_CASE("A run under a plan from a file says which requests missed", "[cli][show]") {
  const TemporaryFolder folder;
  REQUIRE(
      run_berth({"record", "-o", folder / "run.trace", "--", recorded_program(), "steps=8"}).code ==
      0);
  REQUIRE(run_berth({"plan", folder / "run.trace", "-o", folder / "run.plan"}).code == 0);
  const std::string file = folder / "run.json";
  REQUIRE(run_program(
              {recorded_program(), "steps=100", "odd=10"},
              {{"BERTH_STATS", file}, {"BERTH_MODE", "serve"}, {"BERTH_PLAN", folder / "run.plan"}})
              .exit_code == 0);
  const Ran ran = run_berth({"show", file});
  REQUIRE_THAT(one_line(ran.out), Contains("10 times: request 3 of 20 of the step: 966.8 KiB came, "
                                           "the plan expects 19.5 KiB"));
  REQUIRE_THAT(ran.out, Contains("BERTH_MODE=learn"));
}

TEST_CASE("A record says how a plan would serve it", "[cli][show]") {
  const TemporaryFolder folder;
  const auto record = [&](const char* name, const char* odd) {
    REQUIRE(run_berth({"record", "-o", folder / name, "--", recorded_program(), "steps=40", odd})
                .code == 0);
  };
  record("same.trace", "odd=0");
  record("other.trace", "odd=10");
  REQUIRE(run_berth({"plan", folder / "same.trace", "-o", folder / "run.plan"}).code == 0);
  const auto same = run_berth_json({"show", folder / "same.trace", "--plan", folder / "run.plan"});
  REQUIRE(same["misses"].empty());
  REQUIRE(same["hits"] == 39 * 20);
  const Ran other = run_berth({"show", folder / "other.trace", "--plan", folder / "run.plan"});
  REQUIRE_THAT(other.out, Contains("4 times: request 3 of 20 of the step"));
  REQUIRE(run_berth({"show", folder / "run.plan", "--plan", folder / "run.plan"}).code == 3);
  REQUIRE(run_berth({"show", folder / "same.trace", "--plan", folder / "same.trace"}).code == 3);
}

TEST_CASE("Each reason has its sentence and its advice", "[cli][show]") {
  struct {
    Miss miss;
    const char* sentence;
    const char* advice;
  } const cases[] = {
      {{.reason = Reason::kSize,
        .position = 31,
        .requests = 300,
        .expected = 4096,
        .came = 8192,
        .count = 12},
       "12 times: request 32 of 300 of the step: 8.0 KiB came, the plan expects 4.0 KiB",
       "other bytes than when it was planned"},
      {{.reason = Reason::kBusy,
        .position = 1,
        .requests = 1300,
        .expected = 64,
        .came = 64,
        .tag = 5,
        .count = 1},
       "once: request 2 of 1,300 of the step: 64 B came as planned, its bytes were still in use, "
       "tag 5",
       "kept longer"},
      {{.reason = Reason::kLane, .lane = 9, .came = 64, .count = 1000},
       "1,000 times: 64 B came on stream or thread 9, which the plan does not have",
       "a stream or thread"},
      {{.reason = Reason::kLost, .position = 40, .requests = 20, .came = 64, .count = 3},
       "3 times: 64 B came in steps that differ from the plan's, or from some request on: request "
       "41",
       "A kind of step came"},
      {{.reason = Reason::kSize,
        .lane = 7,
        .kind = 1,
        .requests = 10,
        .expected = 1,
        .came = 2,
        .count = 2},
       "2 times: request 1 of 10 of the step, kind 2: 2 B came, the plan expects 1 B, on stream or "
       "thread 7",
       "other bytes"},
  };
  for (const auto& one : cases) {
    const std::string text = shown(stats_with({one.miss}));
    INFO(text);
    REQUIRE_THAT(text, Contains(one.sentence) && Contains(one.advice));
  }
}

TEST_CASE("Sizes that vary at one place are one sentence", "[cli][show]") {
  std::vector<Miss> misses;
  for (berth::Bytes i = 1; i <= 3; ++i)
    misses.push_back({.position = 4, .requests = 9, .expected = 512, .came = i * 1024, .count = i});
  const std::string text = shown(stats_with(misses));
  REQUIRE_THAT(text, Contains("6 times: request 5 of 9 of the step: 1.0 KiB to 3.0 KiB (3 sizes) "
                              "came, the plan expects 512 B"));
  REQUIRE_THAT(text, Contains("the shapes of the steps differ"));
}

TEST_CASE("A run without a plan says why there is none", "[cli][show]") {
  Stats stats;
  stats.requests = stats.unplanned = 1000;
  stats.steps = 50;
  REQUIRE_THAT(shown(stats), Contains("no two steps in a row were alike"));
  stats.plan_searches = 3;
  REQUIRE_THAT(shown(stats), Contains("no step was found that repeats"));
  stats.plans_declined = 1;
  REQUIRE_THAT(shown(stats), Contains("would have held more than the pool does"));
  REQUIRE_THAT(stats.to_line(), Contains("no plan, since one would hold more than the pool"));
  stats.plan_failures = 1;
  REQUIRE_THAT(shown(stats), Contains("its arena could not be had"));
  stats.plans_set_aside = 1;
  REQUIRE_THAT(stats.to_line(), Contains("the pool alone made fewer calls of the driver"));
}

TEST_CASE("A run that hits says nothing of misses", "[cli][show]") {
  Stats stats;
  stats.requests = 100;
  stats.hits = 90;
  stats.unplanned = 10;
  const std::string text = shown(stats);
  REQUIRE_THAT(text, Contains("90 (90.00 %)"));
  REQUIRE_THAT(text, !Contains("missed under") && !Contains("What to do"));
}

TEST_CASE("Statistics of a newer berth or with parts missing are shown", "[cli][show]") {
  const TemporaryFolder folder;
  write_text(folder / "run.json",
             " \n{\"requests\": 10, \"hits\": 5, \"pages_moved\": 7, \"new\": {\"a\": [1]}, "
             "\"misses\": [{\"reason\": 4}, 3, {}], \"lent\": \"x\", \"live\": -1}");
  const Ran ran = run_berth({"show", folder / "run.json"});
  REQUIRE(ran.code == 0);
  REQUIRE_THAT(ran.out, Contains("7 moved between arena and pool"));
  REQUIRE(run_berth_json({"show", folder / "run.json"})["pages_moved"] == 7);
}

TEST_CASE("JSON that is no statistics is refused", "[cli][show]") {
  const TemporaryFolder folder;
  for (const std::string& text :
       {std::string("{"), std::string("{}"), std::string("{\"requests\": 1"),
        std::string("{\"requests\": 1}"), "{\"a\":" + std::string(100'000, '[')}) {
    write_text(folder / "run.json", text);
    const Ran ran = run_berth({"show", folder / "run.json"});
    INFO(text.substr(0, 40) << ran.err);
    REQUIRE(ran.code == 3);
    REQUIRE_THAT(ran.err, Contains("holds no statistics of a run"));
  }
  REQUIRE(run_berth({"replay", folder / "run.json"}).code == 3);
  REQUIRE(run_berth({"plan", folder / "run.json"}).code == 3);
  REQUIRE(run_berth({"verify", folder / "run.json"}).code == 3);
}
