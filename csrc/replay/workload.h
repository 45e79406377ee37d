#pragma once

#include "csrc/core/bytes.h"
#include "csrc/trace/trace.h"

#include <cstdint>
#include <vector>

namespace berth::replay {

// One operation of a replay. Blocks are numbered 0..n-1 in the order of their requests in the
// trace.
struct Operation {
  enum class Kind : std::uint32_t { kAllocate, kFree, kUse, kStep, kEmptyCache };
  Kind kind = Kind::kStep;
  std::uint32_t lane = 0;  // index into Workload::lane_keys; of kUse the one that uses the block
  std::uint64_t block = 0;
  Bytes size = 0;  // of kAllocate, as asked, never 0
  // Of kAllocate: a workspace of a convolution. Where memory is short libtorch does without, by
  // another algorithm.
  bool optional = false;
};

// What a trace asks of any allocator, in order: requests, frees, uses on other lanes, ends of
// steps, and that the cache be emptied. Every block is allocated before it is freed, and freed at
// most once; blocks from before the recording and requests of no bytes are left out.
struct Workload {
  std::vector<Operation> operations;
  std::vector<std::uint64_t> lane_keys;
  std::uint64_t block_count = 0;
  std::uint64_t requests = 0, frees = 0, steps = 0;
  Bytes alignment = 64;  // of the trace

  // Sets requests, frees and steps to what the operations hold.
  void count_operations();

  // The largest sum of live sizes, each rounded up to `unit`.
  [[nodiscard]] Bytes live_peak(Bytes unit) const { return live_peak(unit, true); }
  // The same without what is optional: no run finishes with less.
  [[nodiscard]] Bytes least_live_peak(Bytes unit) const { return live_peak(unit, false); }

 private:
  [[nodiscard]] Bytes live_peak(Bytes unit, bool with_optional) const;
};

[[nodiscard]] Workload make_workload(const Trace& trace);

}  // namespace berth::replay
