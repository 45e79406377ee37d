#pragma once

#include "csrc/trace/step.h"
#include "csrc/trace/step_lane.h"

#include <cstdint>
#include <span>
#include <vector>

namespace berth::trace {

// The orders between lanes that events and host waits made in every repeat, at the same ticks:
//
// - lane B waits for an event that lane A recorded: A's past at the record before B's next request;
// - the host waits for an event or a lane: that past before the next request of every other lane,
//   for the host asks later;
// - the host waits for all lanes: the same from each lane.
//
// An edge says that all before a tick of lane A is past, so where a block of A was freed after the
// record and before A's next request, the edge starts a tick earlier. Edges that others imply are
// left out. O(entries, and lanes squared for each wait).
[[nodiscard]] std::vector<StepEdge> find_edges(const Trace& trace,
                                               std::span<const StepLaneLog> lanes,
                                               std::uint32_t repeats, std::uint32_t unroll);

}  // namespace berth::trace
