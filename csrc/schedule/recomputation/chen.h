#pragma once

#include "csrc/schedule/recomputation/model.h"

#include <cstddef>
#include <functional>

namespace berth::schedule {

// Sublinear memory (Chen, Xu, Zhang, Guestrin: Training Deep Nets with Sublinear Memory Cost,
// 2016), the named baseline. Values over which no read passes split the forward part; their
// Algorithm 3 keeps one of them whenever more than a share B has come together since the last. What
// lies between is recomputed, all at once, when the first of it is wanted; or split in the same way
// once more (their recursion), with a third of the share each time. Values below a thousandth of
// all bytes that are read over more than a tenth of the operators (labels, masks) are always kept
// and stand in the way of no split.
//
// B is 0, then their sqrt(xy), then `grid` values in geometric steps from the smallest value to all
// of them; three levels of recursion; each with and without the values kept that cost more for
// their bytes than the average; alternative 0 of each closing operator, then the next. Every
// plan that differs from the one before goes to `visit`, which prices it: it may be over the
// budget. A plan is O(values x stages); `stop` is asked before each.
//
// Where each operator has a stage of its own (Checkmate's rules) the forward part ends with the
// row that has most bytes when everything is kept.
void chen_plans(
    const StageProblem& problem, std::size_t grid,
    const std::function<void(const Recomputation&)>& visit,
    const std::function<bool()>& stop = [] { return false; });

}  // namespace berth::schedule
