#pragma once

#include "csrc/cli/core/output.h"
#include "csrc/cli/dry_run/dry_run_job.h"
#include "csrc/cli/dry_run/recorded_step.h"
#include "csrc/schedule/joint/working_set.h"

#include <berth/schedule.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace berth::cli {

// What `run --fit` uses of a GPU's memory, and at which rate it copies: python_shim/berth/_loop.py.
inline constexpr double kFittedShare = 0.95;
inline constexpr Bytes kFittedRate = 20'000'000'000;  // bytes a second, each way

// How a step that is larger than the GPU runs on it by a schedule. Times are the roofline's.
struct FittedStep {
  std::uint32_t rank = 0;
  int device = 0;
  std::string why_not;  // there is no step to plan; the rest is then empty
  std::size_t operators = 0;
  Bytes budget = 0;
  Bytes resident = 0;           // what is there between steps, on the device or the host
  schedule::StepResult within;  // in the budget, or why there is no schedule for it
  // Residents leave the step no room in the budget: so much is on the host at the step's peak.
  Bytes spilled = 0;
  std::optional<schedule::StepResult> least;  // the least memory that was found, in any time
  schedule::LeastBudget bound;                // no schedule needs less
  double seconds = 0;                         // of planning
  std::string file = {};                      // of the schedule; empty: not written
  std::string named = {};                     // the same as a run takes it, {rank} and all
};

// Plans the step as a run under `--fit` does, within the memory that the process has of the GPU.
[[nodiscard]] FittedStep fit_step(const RecordedStep& step, const DryRunJob& job,
                                  double time_limit_seconds);

// The shares of time for which the least memory is searched, and what it is: nothing where no
// schedule takes so little time.
inline constexpr std::array<double, 3> kTimeShares = {0.1, 0.2, 0.5};
[[nodiscard]] std::array<std::optional<Bytes>, kTimeShares.size()> least_memory_within_shares(
    const graph::Graph& graph, double time_limit_seconds);

// For people; indented, behind a title.
[[nodiscard]] std::string to_text(const FittedStep& step, const DryRunJob& job);
[[nodiscard]] Json to_json(const FittedStep& step, const DryRunJob& job);

}  // namespace berth::cli
