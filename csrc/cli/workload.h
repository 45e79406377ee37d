#pragma once

#include "csrc/core/bytes.h"
#include "csrc/trace/trace.h"

#include <cstdint>
#include <string>
#include <vector>

namespace berth::cli {

// One operation of a replay. Blocks are numbered 0..n-1 in the order of their requests in the
// trace.
struct Operation {
  enum class Kind : std::uint32_t { kAllocate, kFree, kUse, kStep };
  Kind kind = Kind::kStep;
  std::uint32_t lane = 0;  // index into Workload::lane_keys; of kUse the one that uses the block
  std::uint64_t block = 0;
  Bytes size = 0;  // of kAllocate, as asked, never 0
};

// What a trace asks of any allocator, in order: requests, frees, uses on other lanes, ends of
// steps. Every block is allocated before it is freed, and freed at most once; blocks from before
// the recording and requests of no bytes are left out.
struct Workload {
  std::vector<Operation> operations;
  std::vector<std::uint64_t> lane_keys;
  std::uint64_t block_count = 0;
  std::uint64_t requests = 0, frees = 0, steps = 0;
  Bytes alignment = 64;  // of the trace

  // The largest sum of live sizes, each rounded up to `unit`.
  [[nodiscard]] Bytes live_peak(Bytes unit) const;
};

[[nodiscard]] Workload make_workload(const Trace& trace);

// How a workload is made unlike itself, to see what that costs once a plan was learned. Rates are
// shares of the requests after the third step, or of the second half where so many steps are not
// marked.
struct Perturbation {
  double insert = 0;  // extra requests, of a size that occurs, freed soon after
  double drop = 0;    // requests that are not made
  double resize = 0;  // half to twice the size
  double swap = 0;    // requests that change places with the next one
};

// Reads "insert:0.01". Throws Error(kUsage) for an unknown kind or a rate that is none.
void add_perturbation(Perturbation& perturbation, const std::string& text);

// Deterministic for a seed.
[[nodiscard]] Workload perturb(const Workload& workload, const Perturbation& perturbation,
                               std::uint64_t seed);

}  // namespace berth::cli
