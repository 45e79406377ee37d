#pragma once

#include "csrc/cli/dry_run/batch_argument.h"
#include "csrc/cli/dry_run/batch_search.h"
#include "csrc/cli/dry_run/dry_run_job.h"
#include "csrc/cli/dry_run/dry_run_needs.h"

#include <string>
#include <vector>

namespace berth::cli {

// The largest batch of a program that fits a GPU under each allocator: dry-run's --fit.
struct DryRunFit {
  struct Row {
    std::string name;  // of the allocator, as in Needs::Reserved
    BatchSearch::Answer answer;
  };
  // The largest with a step program, by the time that it adds to the step: kTimeShares.
  struct ScheduledRow {
    double more_time = 0;
    BatchSearch::Answer answer;
  };
  std::string argument;  // as the user named it
  std::vector<Row> rows = {};
  std::vector<ScheduledRow> scheduled = {};  // none where no step can be planned
  unsigned runs = 0;
};

struct DryRunFitOptions {
  unsigned most_runs = 16;
  unsigned few_runs = 8;  // after which answers within a hundredth are enough
  double plan_time_limit_seconds = 2;
};

// Runs the program of `job` with other batches, and says of each on standard error how it went.
// `all` is what its processes needed with the batch that it was given. A GPU has to hold all that
// use it, with their contexts.
//
// A program in Python then runs with further batches, which record its step, for the largest ones
// with a step program: half as many runs at most.
//
// Throws Error(kUsage) where the program refuses the argument.
[[nodiscard]] DryRunFit find_fit(const DryRunJob& job, const BatchArgument& argument,
                                 const std::vector<Needs>& all, const DryRunFitOptions& options);

}  // namespace berth::cli
