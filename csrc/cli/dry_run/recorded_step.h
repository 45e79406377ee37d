#pragma once

#include "csrc/cli/dry_run/dry_run_job.h"
#include "csrc/graph/graph.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace berth::cli {

// The step of one process of a dry run as a step program has it, with the times of its operators
// by a model of the GPU.
struct RecordedStep {
  std::uint32_t rank = 0;
  int device = 0;
  std::optional<graph::Graph> graph;  // nothing: no two steps were the same, or berth refuses it
  std::string why_not;                // then
};

// Why the program's step cannot be recorded, in words; empty where it can be tried.
[[nodiscard]] std::string why_not_recorded(const DryRunJob& job);

// Runs the program once more, in Python, as `python -m berth run --fit` would, until two of its
// steps were the same. One for each process that used a GPU; several GPUs of one process are one
// step. Empty where the program failed.
//
// Throws what run_dry() throws. Requires that why_not_recorded() is empty.
[[nodiscard]] std::vector<RecordedStep> record_steps(const DryRunJob& job);

// The command that trains the program within the GPU's memory, and follows a schedule where one is
// named: for a shell.
[[nodiscard]] std::string command_that_fits(const std::vector<std::string>& program,
                                            const std::string& schedule);

}  // namespace berth::cli
