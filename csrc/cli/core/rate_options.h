#pragma once

#include <berth/referee.h>

#include <CLI/CLI.hpp>

#include <string>

namespace berth::cli {

// How fast the host is, of commands that replay schedules.
struct RateOptions {
  std::string out = "12GB", in = "12GB";  // a second

  // Throws Error(kUsage) that names the option.
  [[nodiscard]] graph::CopyRates rates() const;
};

// Adds --rate-out and --rate-in. `options` outlives `app`.
void add_rate_options(CLI::App& app, RateOptions& options);

}  // namespace berth::cli
