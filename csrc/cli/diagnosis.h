#pragma once

#include "csrc/replay/forecast.h"
#include "csrc/trace/snapshot.h"

#include <optional>
#include <string>
#include <vector>

namespace berth::cli {

// One thing to know about what berth would do for a run, in words; `name` is for programs.
struct Finding {
  std::string name;
  std::string text;
};

// What a person should know beside the figures: whether a plan helps, why not where it does not,
// what else would, and what is uncertain. Most important first. `snapshot` is where the run comes
// from, or null; `cut` says that the run begins with blocks whose requests it does not have.
[[nodiscard]] std::vector<Finding> diagnose(const replay::Forecast& forecast,
                                            const Snapshot* snapshot, bool cut);

}  // namespace berth::cli
