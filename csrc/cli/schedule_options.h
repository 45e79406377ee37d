#pragma once

#include "csrc/cli/core/search_options.h"

#include <optional>
#include <string>

namespace berth::cli {

// What `berth schedule` takes.
struct ScheduleOptions {
  std::string input, output;
  std::string budget;                 // as typed
  std::optional<double> time_budget;  // a share of the recorded time, more than that
  bool order_only = false, json = false, budgets = false, no_addresses = false;
  bool offload_state = false;
  std::string rate_out, rate_in;  // as typed; empty: nothing is copied
  SearchOptions search;
};

// With --order-only: the order with the least memory. Returns the exit code.
int order_step(const ScheduleOptions& options);

}  // namespace berth::cli
