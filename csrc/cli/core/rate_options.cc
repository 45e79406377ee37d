#include "csrc/cli/core/rate_options.h"

#include "csrc/cli/core/option_values.h"

namespace berth::cli {

graph::CopyRates RateOptions::rates() const {
  return {size_option("--rate-out", out), size_option("--rate-in", in)};
}

void add_rate_options(CLI::App& app, RateOptions& options) {
  app.add_option("--rate-out", options.out, "Bytes a second of a schedule's copies to the host")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--rate-in", options.in, "The same for copies back")
      ->type_name("SIZE")
      ->capture_default_str();
}

}  // namespace berth::cli
