#pragma once

#include "csrc/cli/core/option_values.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace berth::cli {

// What every search takes: an engine, limits and a seed.
struct SearchOptions {
  std::string engine = "auto";
  std::optional<double> time_limit;
  std::uint64_t iterations = 0;
  std::uint64_t seed = 1;

  // What is left of the time limit, which counts from the start of the program; above 0. A budget
  // of tries alone makes the result depend on the seed and nothing else: then there is no limit.
  [[nodiscard]] double seconds_left(double otherwise) const {
    constexpr double kLeast = 1e-3;  // enough for the first result
    if (!time_limit && iterations > 0) return std::numeric_limits<double>::infinity();
    return std::max(time_limit.value_or(otherwise) - seconds_since_start(), kLeast);
  }
};

// Adds --engine, --time-limit, --iterations and --seed. `options` outlives `app`; `found` is what
// the search finds ("plan"), for the help.
void add_search_options(CLI::App& app, SearchOptions& options,
                        const std::vector<std::string>& engines, const std::string& found);

}  // namespace berth::cli
