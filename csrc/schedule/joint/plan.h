#pragma once

#include "csrc/graph/referee.h"
#include "csrc/graph/schedule.h"
#include "csrc/schedule/joint/addresses.h"
#include "csrc/schedule/joint/working_set.h"

#include <berth/schedule.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace berth::schedule {

struct StepProgress {
  double seconds = 0;
  std::uint64_t ns = 0, ns_bound = 0;  // of the best step so far that fits; 0: none does yet
  Bytes peak = 0;
  std::string engine;  // that found it
};

// Engines are those of step_engines(): "auto" orders, keeps, makes again and, where there are
// rates, copies; "order" does the first alone, "retain" and "copies" one of the others, from the
// same orders. The budget of iterations is one of each search.
struct StepOptions : PlannerOptions {
  Bytes budget = 0;  // of everything on the device, residents included
  // How fast the device copies; nothing: it does not.
  std::optional<graph::CopyRates> rates = {};
  std::function<void(const StepProgress&)> progress = {};  // from the calling thread
  // Whether the schedule gets addresses, and its arena must fit the budget, too.
  bool addresses = false;
  // Schedules of this graph that are there already: the result is never slower than one that fits.
  std::vector<graph::Schedule> given = {};
};

struct StepResult {
  std::optional<graph::Schedule> schedule;  // the fastest that fits; nothing: none was found
  std::optional<Addresses> addresses;       // of it, where they were wanted
  graph::Verdict verdict;                   // the referee's, of that one
  // The step as it was recorded, nothing made again, each operator in its fastest way.
  Bytes base_peak = 0;
  std::uint64_t base_ns = 0;
  std::optional<Bytes>
      order_peak;              // of the best order, nothing made again, where one was looked for
  Bytes least_budget = 0;      // nothing fits less: what the largest operator needs
  std::string largest;         // that operator
  std::uint64_t ns_bound = 0;  // no schedule is faster
  bool proven_optimal = false;
  std::string why_not;  // where there is no schedule
  double seconds = 0;

  [[nodiscard]] double gap() const noexcept {
    return ns_bound == 0 ? 0.0
                         : static_cast<double>(verdict.ns) / static_cast<double>(ns_bound) - 1.0;
  }
};

// Plans a step within a budget: in which order to run its operators, what to keep, to make again
// and to copy out and back, in which way to run each, so that it takes little time. What it returns
// the referee has replayed. Throws Error(kInput) for what is no graph, Error(kUsage) for an unknown
// engine and rates of 0.
[[nodiscard]] StepResult plan_step(const graph::Graph& graph, const StepOptions& options);

// "auto", "order", "retain", "copies".
[[nodiscard]] const std::vector<std::string>& step_engines();

// A schedule for each budget, least first: each is also offered to the larger ones, so that more
// memory never costs time. Takes the time limit for each.
[[nodiscard]] std::vector<StepResult> plan_budgets(const graph::Graph& graph,
                                                   const std::vector<Bytes>& budgets,
                                                   const StepOptions& options);

}  // namespace berth::schedule
