#pragma once

#include "csrc/cli/peak_holders.h"
#include "csrc/cli/rank_traces.h"
#include "csrc/plan/plan.h"
#include "csrc/trace/trace.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace berth::cli {

// What one process needs of one GPU, whoever serves it, by its trace. Bytes; reserved ones without
// the context.
struct Needs {
  // `name` is stable: caching, expandable, learning (berth, planning in place), planned (berth with
  // the plan from the start).
  struct Reserved {
    std::string name;
    std::optional<Bytes> peak;
    std::string problem = {};  // why it is not known
  };
  // Memory under the plan, over the whole run.
  struct Planned {
    Bytes arena = 0, bound = 0;
    Bytes residents = 0;  // what outlives steps: weights, the optimizer's state
    Bytes outside = 0;    // the most that was held beside the arena: residents, the first steps
    std::uint64_t slots = 0;
  };

  RankTraces::File file = {};  // its trace
  trace::Program program = {};
  std::uint64_t requests = 0, steps = 0;
  Bytes live_peak = 0;  // sizes rounded to 512
  std::vector<Reserved> reserved = {};
  std::optional<Planned> planned = {};
  std::optional<Plan> plan = {};
  std::string why_no_plan = {};
  PeakHolders holders = {};
  std::uint64_t item_reads = 0;       // operators that read one element (item())
  std::uint64_t shapes_by_value = 0;  // operators whose results' shapes depend on values
  bool torn = false;                  // the end of the trace is missing

  [[nodiscard]] const Reserved* find(std::string_view name) const;
  // The least of those that are known: what the program can be run in.
  [[nodiscard]] std::optional<Bytes> least() const;
};

struct NeedsOptions {
  double plan_time_limit_seconds = 2;
  bool holders = true;
};

// Reads the trace and serves it on paper by each allocator. Throws Error(kInput) for a trace that
// cannot be read.
[[nodiscard]] Needs find_needs(const RankTraces::File& trace, const NeedsOptions& options);

}  // namespace berth::cli
