#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth::schedule {

// When the bytes of a schedule are taken: what a placement has to know of it. Residents are no part
// of it.
//
// Ticks are half-open, [birth, end), and step k has two of them: it begins at 2k + 2 and ends
// before 2k + 4; tick 0 is the beginning. A workspace is [2k + 2, 2k + 3). A drop at step k is a
// end at 2k + 2, so a birth at step k + 1 may have the bytes.
//
// What is offloaded dies at the first step that begins when the copy has ended, by the clock of
// the referee: a placement that keeps these lifetimes makes no birth wait. Under the budget of a
// schedule births wait where it asks them to.
struct Lifetimes {
  struct One {
    static constexpr graph::BufferId kWorkspace = ~graph::BufferId{0};
    graph::BufferId buffer = kWorkspace;
    std::size_t step = 0;  // of a workspace: whose; on the host: the offload
    Bytes bytes = 0;       // 0 only where the storage has none
    std::uint64_t birth = 0, end = 0;
  };
  std::vector<One> all;  // in the order of their births; a buffer has one for each of its own
  Bytes live_peak = 0;   // most that is alive at one tick
  // On the host, from the offload to the first offload that begins when the reload has ended: no
  // copy waits for another's bytes.
  std::vector<One> host;
  Bytes host_peak = 0;
};

// O(steps + reads + writes). Requires: graph::replay(graph, schedule, rates) finds no violation but
// in the addresses, which it does not look at.
[[nodiscard]] Lifetimes lifetimes_of(const graph::Graph& graph, const graph::Schedule& schedule,
                                     const graph::CopyRates& rates = {});

// Whether all of a schedule's lifetimes have an address in it, and its arena holds all that is
// alive. It may be smaller where births take the bytes of copies that have not ended: they wait.
// O(births).
[[nodiscard]] bool all_placed(const Lifetimes& lifetimes, const graph::Schedule& schedule);

}  // namespace berth::schedule
