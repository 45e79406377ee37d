#pragma once

#include "csrc/schedule/recomputation/model.h"

#include <cstddef>
#include <functional>

namespace berth::schedule {

// Plans that trade time for bytes at one price for all: where the forward part ends, each value
// that the backward part wants is kept, for its bytes times the price, or recomputed, for what its
// operator costs and for what that wants in turn. The cheapest for a price is a minimum cut. What
// is recomputed is so once, where it is wanted first, and kept until its last use.
//
// `grid` prices in geometric steps up to the first whose plan fits, then as many between that and
// the one before; each is a cut of a network of operators and values. Every plan goes to `visit`,
// which says whether it fits: many do not, above all where much is recomputed at once. For kExact
// with a backward part; no plan for other problems. `stop` is asked before each cut. For deep nets,
// where a search has too few moves for what there is to choose: one cut chooses for all.
void cut_plans(
    const StageProblem& problem, std::size_t grid,
    const std::function<bool(const Recomputation&)>& visit,
    const std::function<bool()>& stop = [] { return false; });

}  // namespace berth::schedule
