#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/graph.h"
#include "csrc/graph/referee.h"
#include "csrc/graph/schedule.h"

#include <berth/place.h>

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
  graph::CopyRates rates = {};                              // say when copies out have ended
};

// What place_addresses() found.
struct Addresses {
  Bytes arena_bytes = 0;  // the highest end of all that is placed; may be above the capacity
  Bytes live_peak = 0;    // most that is alive of it at one time
  Bytes bound = 0;        // no placement needs less
  std::string engine;     // that found it
  double seconds = 0;

  [[nodiscard]] double gap() const noexcept {
    return bound == 0 ? 0.0 : static_cast<double>(arena_bytes) / static_cast<double>(bound) - 1.0;
  }
  [[nodiscard]] double fragmentation() const noexcept {
    return arena_bytes == 0
               ? 0.0
               : static_cast<double>(arena_bytes - live_peak) / static_cast<double>(arena_bytes);
  }
};

// Gives all that a schedule has on the device but its residents a place in one arena: each birth of
// each buffer and each workspace (ScheduleStep::workspace_offset). Any places that were there
// before are replaced. Sets Schedule::arena_bytes; the budget, which also holds the residents, is
// for the caller to compare: resident + arena_bytes.
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
