#pragma once

#include "bench/pool/strategy.h"
#include "csrc/core/bytes.h"
#include "csrc/device/driver_costs.h"
#include "csrc/replay/workload.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace berth::bench {

// A device that runs behind the host, as a GPU does.
enum class DeviceForm : std::uint8_t {
  kSegments,  // maps no pages: every growth is a segment of its own
  kMapping,   // pages of 2 MiB, each behind one address at a time
  kAliasing,  // and behind several: the pool may make blocks of pages from several holes
};

struct PoolRunOptions {
  DeviceForm device = DeviceForm::kMapping;
  Split split = Split::kSize;
  std::uint64_t brief = 2;  // of make_strategy()
  Bytes limit = 0;          // what the device has, in whole pages; 0: more than the run can need
  bool gives_back = true;   // false: pages stay where they are, as in one range of a fixed size
  // Looks at the free memory so often, about; 0: never.
  std::uint64_t samples = 0;
};

struct PoolRun {
  Bytes reserved_peak = 0;
  Bytes reserved_first_step = 0;  // the most until the first mark
  MemoryCallCounts memory_calls;  // of CUDA's
  std::uint64_t failed_steps = 0;
  // Of each sample the share of free committed bytes in holes too small for the request: Gorman and
  // Whitcroft's unusable free space index (2005), of 1 MiB and more. In order.
  std::vector<double> unusable;
};

// Replays a run on the pool alone. A request that finds no memory has the pool give back what it
// can, and is tried again; where that fails, too, the step ends there: what it made is freed, and
// the run goes on with the next one.
[[nodiscard]] PoolRun run_pool(const replay::Workload& workload, const PoolRunOptions& options);

}  // namespace berth::bench
