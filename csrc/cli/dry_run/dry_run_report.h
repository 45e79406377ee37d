#pragma once

#include "csrc/cli/core/output.h"
#include "csrc/cli/dry_run/dry_run_fit.h"
#include "csrc/cli/dry_run/dry_run_job.h"
#include "csrc/cli/dry_run/dry_run_needs.h"
#include "csrc/cli/dry_run/fitted_step.h"
#include "csrc/cli/dry_run/gpu_use.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace berth::cli {

// What `dry-run` found, for people and as JSON.
struct DryRunReport {
  struct Rank {
    Needs needs;
    std::string plan;  // its file; empty: none was written
  };
  DryRunJob job;
  DryRun run;
  std::vector<Rank> ranks;  // one for each GPU that a process used
  std::optional<DryRunFit> fit;
  std::vector<FittedStep> steps =
      {};                         // by schedules within the GPU's memory, where that was planned
  std::string why_no_steps = {};  // where it was to be

  // Index of the one that needs most. Requires !ranks.empty().
  [[nodiscard]] std::size_t worst() const;
  // The GPUs that were used; holds as long as `ranks` does.
  [[nodiscard]] std::vector<GpuUse> gpus() const;
  // Whether each GPU has room for all that use it, under the best allocator for each.
  [[nodiscard]] bool fits() const;

  [[nodiscard]] Json to_json() const;
  [[nodiscard]] std::string to_text() const;

 private:
  [[nodiscard]] std::string larger_text() const;
};

}  // namespace berth::cli
