#pragma once

#include "csrc/core/bytes.h"
#include "csrc/device/driver_costs.h"

#include <berth/stats.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace berth::replay {

// What one step of a replay needed.
struct StepResult {
  std::uint64_t requests = 0, hits = 0, misses = 0;  // hits: those of buckets, too
  Bytes live = 0, reserved = 0;                      // at its end
  MemoryCallCounts memory_calls = {};
};

// How one allocator served a workload. What it cannot tell is empty.
struct Result {
  std::optional<Bytes> reserved_peak;
  std::optional<std::uint64_t> driver_calls;
  std::optional<MemoryCallCounts> memory_calls;  // of the driver, each kind
  std::optional<std::uint64_t> retries;  // after the cache was given back, of PyTorch's allocators
  std::optional<double> ns_per_operation;  // of allocations and frees; planning is not in it
  std::optional<std::uint64_t> hits, hits_bucket, lent, misses, unplanned, realigned;
  std::optional<Bytes> arena;     // of the plan at the end
  std::optional<Stats> stats;     // all counters, of berth
  std::vector<StepResult> steps;  // where they were asked for and are known
  bool out_of_memory = false;
  std::string problem;  // why it did not run, or not to its end
};

}  // namespace berth::replay
