#pragma once

#include "csrc/core/bytes.h"
#include "csrc/replay/repeated_step.h"
#include "csrc/trace/trace.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace berth::replay {

// What the allocators would hold for a recorded run of one device, and what a plan could change.
// Bytes are at most over the whole run, its start included, as PyTorch counts reserved_bytes.
//
// berth is replayed, not estimated: the same allocator over a device on paper, learning in place.
// Where the run is too short for that, its step is repeated (`repeated`), and both the run as it
// was and the one with the repeats are replayed: of each allocator the larger figure counts. So no
// figure is below what lives in the run.
struct Forecast {
  std::uint64_t requests = 0, steps = 0;
  // Of the requests those that the history has; the others are blocks that were there before it.
  std::uint64_t recorded_requests = 0, frees = 0;
  Bytes alignment = 0;  // of its blocks
  // Not recorded on CUDA: the native allocators are CUDA's and say nothing about it.
  bool on_cpu = false;

  Bytes live = 0;                // sizes rounded, to 512 on CUDA: no allocator can hold less
  Bytes resident = 0;            // of that, what outlives steps
  bool resident_by_step = true;  // false: no step was found; what lives half of the run or longer

  std::optional<Bytes> measured;  // by PyTorch's allocator, where the trace has its segments
  // What the segments of the trace come to, where that is less than what lives by its requests: one
  // of the two is incomplete, and `measured` is not set.
  std::optional<Bytes> contradicting;
  Bytes caching = 0;  // PyTorch's allocator by its model, without and with expandable segments
  Bytes expandable = 0;

  Bytes planned = 0;                 // berth, learning in place
  Bytes planned_run = 0;             // the same of the run as it was, without repeats
  Bytes pool = 0;                    // berth without a plan
  Bytes arena = 0, arena_bound = 0;  // of the plan that is made of the whole run; 0: none
  std::uint32_t repeated = 0;        // how often the step was put behind the run
  Bytes repeated_live = 0;           // what lives then, at most; 0: nothing was repeated
  // The run has its step once, or no whole one: that it repeats is an assumption.
  bool assumed = false;

  // Share of the requests that lie in repeats of one step, or in steps of a kind that comes again.
  double repeating_requests = 0;
  std::optional<double> repeating_bytes;  // of one step
  double hits = 0;  // share of the requests at their places, once each kind of step is known
  std::size_t kinds = 0;
  bool many_sizes = false;
  std::string why_no_step;  // in one line, where none was found

  // What PyTorch's allocator holds: as measured, else by the model. Where more lives in the repeats
  // than in the run, the model has the word if it says more.
  [[nodiscard]] Bytes native() const noexcept {
    if (!measured) return caching;
    return repeated_live > live ? std::max(*measured, caching) : *measured;
  }
  // What berth would save of it, 0 where it would hold more.
  [[nodiscard]] Bytes saving() const noexcept {
    return native() > planned ? native() - planned : 0;
  }
  // How much larger a batch could be in `bytes` where `reserved` are held now, if all but the
  // residents grows with it: the least that is to be had, since some of it does not grow. Nothing
  // where residents are all there is.
  [[nodiscard]] std::optional<double> batch_factor(Bytes bytes, Bytes reserved) const noexcept;
};

// O(entries log entries), and a replay of each allocator. Throws Error(kSystem) where no address
// range can be had.
[[nodiscard]] Forecast forecast(const Trace& trace);

}  // namespace berth::replay
