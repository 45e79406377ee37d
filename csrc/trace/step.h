#pragma once

#include "csrc/trace/trace.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace berth {

// One request of a step, as the planner sees it.
//
// Time in a step is counted per lane in ticks, and a tick is the index of a request among those of
// its lane: the k-th request of a lane is born at tick k, and a block freed after the k-th and
// before the (k+1)-th request of its lane ends at tick k + 1. Time is a circle of
// Step::Lane::period ticks.
//
// A request for no bytes is none: it makes no tick. Where most of what was alive longer than a
// period lives a few of them, the step covers several periods of the program.
struct StepRequest {
  Bytes bytes = 0;           // as asked
  std::uint32_t lane = 0;    // index into Step::lanes
  std::uint32_t birth = 0;   // tick of its lane
  std::uint32_t length = 0;  // ticks, 1..period; the longest of all repeats seen
  trace::Tag tag = 0;
  bool planned = true;  // false: outlives a whole period (or is a resident): served by the pool
  trace::BlockId block = 0;  // the block that it was in the step cut out
};

// All that `from_lane` did before its tick `from_tick`, in [0, period], happens before all that
// `to_lane` does from its tick `to_tick`, in [0, period), on, `delta` (0 or 1) steps later. A trace
// proved it in every repeat.
struct StepEdge {
  std::uint32_t from_lane = 0, from_tick = 0;
  std::uint32_t to_lane = 0, to_tick = 0;
  std::uint32_t delta = 0;
};

struct StepLane {
  std::uint64_t key = 0;
  std::uint32_t period = 0;  // requests of the lane in the step
  std::vector<std::uint32_t>
      marks;  // ticks before which a step mark is expected, ascending, in [0, period)
};

// A resident: alive at both ends of the step, never planned per step.
struct Resident {
  trace::BlockId block = 0;
  Bytes bytes = 0;
  std::uint32_t lane = 0;  // index into Trace::lanes
};

// One period of a run, cut out of its trace.
struct Step {
  std::vector<StepLane> lanes;
  std::uint32_t primary = 0;          // index into lanes: the one whose repeats the step was cut by
  std::vector<StepRequest> requests;  // in the order of the run; of one lane, births ascend by one
  std::vector<StepEdge> edges;
  std::vector<Resident> residents;
  trace::Tick first_tick = 0, last_tick = 0;  // of the trace, half-open
  std::uint32_t repeats = 0;   // how often the shortest period was seen in a row, at least 2
  std::uint32_t unrolled = 1;  // how many of those this step covers
  std::uint32_t marks_per_period = 1;  // 0 where the step has no marks
};

struct StepOptions {
  // Repeats that must agree in sizes and lanes.
  std::uint32_t min_repeats = 2;
  // A step is unrolled up to this often where large blocks live longer than one period.
  std::uint32_t max_unroll = 4;
  // Of a period that was found in the requests: with more it is a long cycle of unequal steps.
  std::uint32_t most_marks = 16;
  // Set by any thread: the search ends soon, and may say that nothing repeats.
  const std::atomic<bool>* cancel = nullptr;

  [[nodiscard]] bool cancelled() const noexcept {
    return cancel != nullptr && cancel->load(std::memory_order_relaxed);
  }
};

// Cuts the steady step out of a trace: the last long run of steps whose requests repeat, between
// marks or, where those are missing or do not help, found from the requests themselves. What comes
// before and after it, as the first step and the program's end, does not matter; who wants the
// newest of several kinds of steps gives recent entries only. The lane that decides is a marked one
// that repeats between marks, else the one that repeats and asks for most; lanes that do not repeat
// with it are left out. Nothing where nothing repeats; `why_not` then says so in one line.
//
// A slot lives as long as the longest repeat, since garbage collectors move frees; but where at
// most one in ten outlives the period those do not count (an output kept now and then). `block`,
// tags, marks and residents are those of the last whole repeat.
//
// O(entries) at marks, O(entries log entries) without.
[[nodiscard]] std::optional<Step> extract_step(const Trace& trace, const StepOptions& options = {},
                                               std::string* why_not = nullptr);

}  // namespace berth
