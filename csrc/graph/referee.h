#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace berth::graph {

// How fast a buffer gets to the host and back, bytes per second.
struct CopyRates {
  Bytes out = 12'000'000'000, in = 12'000'000'000;
};

// What the referee says of a schedule. Peaks and times that anybody is told are these.
struct Verdict {
  // The first thing that is wrong, in one line that names step, operator and value; empty where the
  // schedule is legal. The rest holds for legal ones alone.
  std::string violation;

  Bytes resident = 0;  // all the time; part of every figure but arena and host
  // Largest of `live` at a run or a copy in; `resident` where there is none. An input that is
  // dropped before is no part of it.
  Bytes peak = 0;
  std::size_t peak_step = 0;
  // Bytes on the device by step: while an operator runs, its results and workspace included; after
  // any other step.
  std::vector<Bytes> live;
  Bytes arena = 0;      // high-water mark of what has an offset
  Bytes host_peak = 0;  // most that is copied out at one time

  std::uint64_t compute_ns = 0;                     // of all runs
  std::uint64_t recomputed_ns = 0, recomputed = 0;  // of runs after an operator's first
  Bytes copied_out = 0, copied_in = 0;
  std::uint64_t ns = 0;  // from the first run to the end of the last run and copy
};

// Replays a schedule over symbolic contents: each buffer holds a version of a storage, and every
// operator must find what it reads. Trusts nothing of the schedule, and shares no code with those
// that make schedules. `graph` is legal (violation() says so).
//
// What is demanded:
// - Each operator runs, and its reads are on the device, hold the version that it reads, and are
//   nowhere written over before. A write is a buffer's birth, or the next version of what it holds,
//   or in place of a read that the alternative allows. An operator that reads the version before
//   writes into the same buffer.
// - What is random, changes state, waits for the host or is a collective runs once. Random
// operators
//   keep their recorded order, and so do, among themselves, collectives and those that wait for the
//   host. Control edges hold between first runs.
// - Residents stay where they are, and hold their last version at the end.
// - Buffers that are on the device at one time share no byte of the arena, and fit it.
// - Residents, what lies outside the arena and the whole arena fit the budget.
//
// Time: operators run one after the other, beside one engine that copies out and one that copies
// in. A copy begins when the runs before it in the list and the engine's copies before it have
// ended; a copy in also not before its copy out has. A run waits for the copies in of what it reads
// and writes. A birth waits for copies out where their bytes are in its place, or where it is above
// the budget as long as they are not gone.
//
// O((steps + reads + writes) log buffers). Throws Error(kUsage) for rates of 0.
[[nodiscard]] Verdict replay(const Graph& graph, const Schedule& schedule,
                             const CopyRates& rates = {});

}  // namespace berth::graph
