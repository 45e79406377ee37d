#pragma once

#include <CLI/CLI.hpp>

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

  // A budget of tries alone makes the result depend on the seed and nothing else.
  [[nodiscard]] double time_limit_seconds(double otherwise) const {
    if (time_limit) return *time_limit;
    return iterations > 0 ? std::numeric_limits<double>::infinity() : otherwise;
  }
};

// Adds --engine, --time-limit, --iterations and --seed. `options` outlives `app`; `found` is what
// the search finds ("plan"), for the help.
void add_search_options(CLI::App& app, SearchOptions& options,
                        const std::vector<std::string>& engines, const std::string& found);

}  // namespace berth::cli
