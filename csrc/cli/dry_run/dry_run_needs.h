#pragma once

#include "csrc/cli/dry_run/rank_traces.h"
#include "csrc/cli/summaries/peak_holders.h"
#include "csrc/plan/plan.h"
#include "csrc/trace/trace.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace berth::cli {

// What one process needs of one GPU under each allocator, by its trace. Bytes, without the context.
struct Needs {
  // `name` is stable: caching, expandable, learning (berth, planning in place), planned (berth with
  // the plan from the start).
  struct Reserved {
    std::string name;
    std::optional<Bytes> peak = {};   // without a limit
    std::optional<Bytes> least = {};  // of memory, with which the run finishes: see least_limit.h
    // How often PyTorch's allocators gave their cache back and tried again, with
    // NeedsOptions::limit.
    std::optional<std::uint64_t> retries = {};
    std::string problem = {};  // why it is not known

    // What a GPU must have for it: the least, and where others use the GPU as well what it reserves
    // without a limit, for nobody gives back what others want.
    [[nodiscard]] std::optional<Bytes> needed(bool shared) const { return shared ? peak : least; }
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
  std::uint64_t private_pools = 0;  // times that it turned to one, whose memory is not in the trace
  bool torn = false;                // the end of the trace is missing

  [[nodiscard]] const Reserved* find(std::string_view name) const;
  // The least that is needed under any of those that are known: what the program can be run in.
  [[nodiscard]] std::optional<Bytes> least(bool shared) const;
};

struct NeedsOptions {
  double plan_time_limit_seconds = 2;
  bool holders = true;
  Bytes limit = 0;  // what a process may reserve on the GPU in question; 0: not known
};

// Reads the trace and serves it on paper by each allocator: without a limit once, and with limits
// until the least is found that does (at most some 15 times). PyTorch's follow what
// PYTORCH_ALLOC_CONF asks for (torch_settings.h). Throws Error(kInput) for a trace that
// cannot be read.
[[nodiscard]] Needs find_needs(const RankTraces::File& trace, const NeedsOptions& options);

}  // namespace berth::cli
