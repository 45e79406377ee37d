#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/graph.h"

#include <berth/referee.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace berth::schedule {

// The time that no schedule of a graph within a budget takes less than, in whatever order its
// operators run, and whatever is kept, recomputed or copied.
//
// While v runs first, let X be the operators that have run: all that v depends on, neither v nor
// what depends on v, and with each operator all that it depends on. A value made in X that one
// outside of X reads is on the device then, or its maker runs once more later, or it was offloaded
// before and is reloaded later. So is, in turn, what such a run reads. Each byte on the device
// that is not there for v itself has a price p, and so has, as a credit, each byte that the budget
// leaves beside v. What is not above the budget costs no more than nothing, so for every p
//
//   time >= operators once + (makers that are recomputed) + p (bytes on the device - those there
//   may be)
//
// for the X of that schedule, and no less than the least of the right side over all X and all
// alternatives to have what is needed: a minimum cut. The largest over prices and operators v is
// the bound.
//
// Copies: those out end before v, those in begin behind it, so the time is no less than what both
// take one after the other, r a byte. A mean of that, with weight w, and of the sum above, with
// weight 1 - w, bounds it, too; the best weight for p is p / r, where a byte costs as much on the
// host as on the device.
struct TimeBoundOptions {
  Bytes budget = 0;                                   // residents included
  std::optional<graph::CopyRates> rates = {};         // nothing: the device does not copy
  unsigned places = 6;                                // operators v that are tried
  std::function<bool()> stop = [] { return false; };  // asked before each cut
};

// `order` is a legal one: where it has most alive, a cut is looked for. 16 cuts a place, each of a
// network of operators and values. `graph` is legal.
[[nodiscard]] std::uint64_t time_bound(const graph::Graph& graph,
                                       std::span<const graph::OperatorId> order,
                                       const TimeBoundOptions& options);

}  // namespace berth::schedule
