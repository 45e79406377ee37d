#include "csrc/schedule/offload/plan.h"
#include "tests/catch.h"

#include <berth/error.h>
#include <berth/papers.h>
#include <berth/schedule.h>

#include <string>
#include <vector>

using namespace berth;
using Names = std::vector<std::string>;

TEST_CASE("Planners of papers are engines from use_papers() on, once each", "[papers]") {
  REQUIRE(schedule::step_engines() == Names{"auto", "order", "recompute", "offload", "release"});
  REQUIRE(schedule::offload::copy_engines() ==
          Names{"auto", "joint", "offload", "recompute", "keep"});
  graph::Graph step;
  schedule::StepOptions options;
  options.engine = "chen";
  REQUIRE_THROWS_WITH(schedule::plan_step(step, options),
                      Catch::Matchers::Contains("no engine 'chen'") &&
                          Catch::Matchers::Contains("berth::use_papers()"));
  for (int time = 0; time < 2; ++time) {
    use_papers();
    REQUIRE(schedule::step_engines() == Names{"auto", "order", "recompute", "offload", "release",
                                              "chen", "checkmate", "knapsack", "monet", "vdnn",
                                              "dymem"});
    REQUIRE(schedule::offload::copy_engines() ==
            Names{"auto", "joint", "offload", "recompute", "keep", "vdnn", "dymem"});
  }
}
