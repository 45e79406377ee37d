#pragma once

#include "csrc/schedule/recomputation/model.h"

#include <cstdint>
#include <string>
#include <vector>

namespace berth::schedule {

// A graph that MONeT's authors profiled, with plans that they published: theirs, and those of
// Checkmate that they let run beside.
struct PublishedPlan {
  double budget_gb = 0;   // of 2^30 bytes
  std::int64_t cost = 0;  // the published objective, in 10 microseconds
  Recomputation plan;
};
struct PublishedGraph {
  std::string name;
  StageProblem problem;  // of the table that its plans name, without a budget
  std::vector<PublishedPlan> plans;
};

// Reads one such file (tests/schedule/data/README.md has their source): one graph for each table of
// costs that a plan names, or for the first one where there is no plan. Sizes are in KiB, rounded
// up; costs in 10 microseconds. Throws Error(kInput) that names the file and what is wrong.
[[nodiscard]] std::vector<PublishedGraph> read_published(const std::string& path);

// So many GB of 2^30 bytes in the problem's units.
[[nodiscard]] std::int64_t published_budget(double gb);

}  // namespace berth::schedule
