#pragma once

#include "tests/catch.h"

#include <berth/step_program.h>

#include <torch/torch.h>

#include <cstdlib>
#include <functional>
#include <limits>
#include <vector>

// Bodies of steps that give in each step what they give without a step program.
namespace berth::test::bodies {

// As those, each plan waited for, so that tests know which step it runs.
inline berth::torch::StepProgramOptions waiting(berth::torch::StepProgramOptions options = {}) {
  options.plan_wait_seconds = std::numeric_limits<double>::infinity();
  setenv("BERTH_PLAN_TIME_LIMIT", "0.2", 0);  // bits are compared, not schedules
  return options;
}

inline constexpr int kSteps = 9;

struct Outcome {
  std::vector<at::Tensor> seen;  // what each step left
  berth::torch::StepProgramStats stats;
};

// What `body` returns, a copy of it, in each step; `made` anew for each run, with the same seed.
using Body = std::function<at::Tensor(int step)>;
inline Outcome run(const std::function<Body()>& make, bool scheduled,
                   const berth::torch::StepProgramOptions& options = {}) {
  ::torch::manual_seed(7);
  const Body body = make();
  berth::torch::StepProgram program(waiting(options));
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    at::Tensor left;
    if (scheduled) {
      const auto scope = program.step();
      left = body(step);
    } else {
      left = body(step);
    }
    outcome.seen.push_back(left.detach().clone());
  }
  outcome.stats = program.stats();
  return outcome;
}

// Runs both ways, compares all bits, and returns the counters.
inline berth::torch::StepProgramStats as_eager(
    const std::function<Body()>& make, const berth::torch::StepProgramOptions& options = {}) {
  const Outcome eager = run(make, false, options), scheduled = run(make, true, options);
  CAPTURE(scheduled.stats.to_json());
  for (int step = 0; step < kSteps; ++step) {
    CAPTURE(step, eager.seen[step], scheduled.seen[step]);
    REQUIRE(eager.seen[step].dtype() == scheduled.seen[step].dtype());
    REQUIRE(eager.seen[step].sizes() == scheduled.seen[step].sizes());
    REQUIRE(::torch::equal(eager.seen[step], scheduled.seen[step]));
  }
  return scheduled.stats;
}

}  // namespace berth::test::bodies
