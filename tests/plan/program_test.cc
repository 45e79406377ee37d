#include "csrc/plan/program.h"

#include "tests/catch.h"

using namespace berth;

namespace {

trace::Program program() {
  return {.torch_version = "2.11.0",
          .device_name = "cpu",
          .device_bytes = Bytes{8} << 30,
          .world_size = 8,
          .rank = 1,
          .tag = "a"};
}

std::string difference(const trace::Program& plan) {
  return program_difference(plan, program()).value_or("none");
}

}  // namespace

TEST_CASE("A plan for the same program gives no warning", "[plan][program]") {
  REQUIRE(difference(program()) == "none");
}

TEST_CASE("Each difference between programs is named with both values", "[plan][program]") {
  trace::Program plan = program();
  plan.torch_version = "2.10.0";
  REQUIRE(difference(plan) == "made with torch 2.10.0 (here 2.11.0)");
  plan = program();
  plan.device_name = "NVIDIA H100";
  plan.device_bytes = Bytes{80} << 30;
  REQUIRE(difference(plan) ==
          "on device 'NVIDIA H100' (here 'cpu'), with memory of 80.0 GiB (here 8.0 GiB)");
  plan = program();
  plan.device_bytes += 4096;
  REQUIRE(difference(plan) == "with memory of 8589938688 B (here 8589934592 B)");
  plan = program();
  plan.rank = 0;
  REQUIRE(difference(plan) == "for rank 0 of 8 (here 1 of 8)");
  plan = program();
  plan.world_size = 4;
  plan.tag = "";
  REQUIRE(difference(plan) == "for rank 1 of 4 (here 1 of 8), with tag '' (here 'a')");
}

TEST_CASE("What is not known of a program is no difference", "[plan][program]") {
  trace::Program plan = program();
  plan.torch_version = plan.device_name = "";
  plan.device_bytes = 0;
  REQUIRE(difference(plan) == "none");
}
