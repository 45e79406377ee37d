#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"

#include <berth/place.h>
#include <berth/schedule.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace berth::schedule {

struct AddressOptions {
  // Stop at the first placement within this many bytes; without it only a proof or a limit stops.
  std::optional<Bytes> capacity = {};
  double time_limit_seconds = 10;  // infinity: none
  // Of the placement, as PlaceOptions has it; 0: no limit but time. With a budget and no time limit
  // the result depends on the seed alone.
  std::uint64_t iteration_budget = 0;
  std::uint64_t seed = 1;
  unsigned threads = 1;                       // 0: one a core
  const std::atomic<bool>* cancel = nullptr;  // set by any thread: the best so far is taken
  std::function<void(const PlaceProgress&)> progress = {};  // as PlaceOptions has it
  graph::CopyRates rates = {};                              // say when offloads have ended
};

// Gives all that a schedule has on the device but its residents a place in one arena: each birth of
// each buffer and each workspace (ScheduleStep::workspace_offset); and each offload a place in an
// arena of the host (ScheduleStep::host_offset). Any places that were there before are replaced.
// Sets Schedule::arena_bytes and Schedule::host_bytes; the budget, which also holds the residents,
// is for the caller to compare: resident + arena_bytes.
//
// Bytes are taken as Lifetimes says, so that no operator waits longer than before: what is copied
// out keeps its bytes until the copy has ended. Offsets are multiples of the largest power of two,
// 512 at most, that divides the size of each storage placed.
//
// O(steps + reads + writes), then place_buffers(): its least is a first fit. Throws Error(kUsage)
// for a schedule that the referee refuses, with what he says.
Addresses place_addresses(const graph::Graph& graph, graph::Schedule& schedule,
                          const AddressOptions& options = {});

}  // namespace berth::schedule
