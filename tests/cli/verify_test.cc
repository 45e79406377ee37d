#include "csrc/plan/file.h"
#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/temporary_folder.h"

using namespace berth::test;
using Catch::Matchers::Contains;

TEST_CASE("A plan is legal alone and covers the step of its trace", "[cli][verify]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  REQUIRE(run_berth({"plan", folder / "run.csv", "-o", folder / "run.plan"}).code == 0);
  const Ran alone = run_berth({"verify", folder / "run.plan"});
  REQUIRE(alone.code == 0);
  REQUIRE_THAT(alone.out, Contains("legal"));
  const nlohmann::json json = run_berth_json({"verify", folder / "run.plan", folder / "run.csv"});
  REQUIRE(json["legal"] == true);
  REQUIRE(json["violation"].is_null());
  REQUIRE(json["serves"] == true);
  REQUIRE(json["mismatch"].is_null());
  REQUIRE(run_berth_json({"verify", folder / "run.plan"})["serves"].is_null());
}

TEST_CASE("A plan for another program is legal but does not serve a trace", "[cli][verify]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  write_text(folder / "other.csv", events_csv(4, 5));
  REQUIRE(run_berth({"plan", folder / "run.csv", "-o", folder / "run.plan"}).code == 0);
  const Ran ran = run_berth({"verify", folder / "run.plan", folder / "other.csv"});
  REQUIRE(ran.code == 1);
  REQUIRE(ran.out.empty());
  REQUIRE_THAT(ran.err, Contains("is legal, but does not serve the step of '"));
  REQUIRE_THAT(ran.err, !Contains("not legal"));
  const nlohmann::json json =
      run_berth_json({"verify", folder / "run.plan", folder / "other.csv"}, 1);
  REQUIRE(json["legal"] == true);
  REQUIRE(json["violation"].is_null());
  REQUIRE(json["serves"] == false);
  REQUIRE_FALSE(json["mismatch"].get<std::string>().empty());
}

TEST_CASE("A trace without a step that repeats is covered by no plan", "[cli][verify]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  write_text(folder / "one.csv", events_csv(1));
  REQUIRE(run_berth({"plan", folder / "run.csv", "-o", folder / "run.plan"}).code == 0);
  const Ran ran = run_berth({"verify", folder / "run.plan", folder / "one.csv"});
  REQUIRE(ran.code == 1);
  REQUIRE_THAT(ran.err, Contains("is legal, but '") && Contains("has no step to serve"));
  REQUIRE_THAT(ran.err, !Contains("not legal"));
}

TEST_CASE("A plan whose blocks overlap is a no that names the slots and damage is not",
          "[cli][verify]") {
  const TemporaryFolder folder;
  berth::Plan plan;
  plan.lane_keys = {0};
  plan.arena_bytes = 128;
  plan.lower_bound = 128;
  berth::Sequence sequence;
  sequence.period = 2;
  // Both live at tick 1.
  sequence.slots = {{.offset = 0, .requested = 128, .size = 128, .birth = 0, .length = 2},
                    {.offset = 64, .requested = 64, .size = 64, .birth = 1, .length = 1}};
  plan.sequences = {sequence};
  const auto bytes = berth::serialize_plan(plan);
  write_text(folder / "bad.plan",
             std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  const Ran ran = run_berth({"verify", folder / "bad.plan"});
  INFO(ran.err);
  REQUIRE(ran.code == 1);
  REQUIRE_THAT(ran.err, Contains("slot 0") && Contains("slot 1"));
  const nlohmann::json json = run_berth_json({"verify", folder / "bad.plan"}, 1);
  REQUIRE(json["legal"] == false);
  // Every other command refuses to read it.
  REQUIRE(run_berth({"show", folder / "bad.plan"}).code == 3);
}
