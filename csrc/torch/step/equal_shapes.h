#pragma once

#include "csrc/torch/step/record.h"

#include <cstdint>
#include <unordered_map>

namespace berth::torch::step {

// Of operators whose results data give their shapes: the dimensions of results that were seen to
// differ where nothing that the call took did, by schema and result, as bits.
using ShapedByData =
    std::unordered_map<const c10::FunctionSchema*, std::unordered_map<std::size_t, std::uint64_t>>;

// Lets that vary in the record which has shapes by data and had equal ones in both steps by chance:
// results of these operators, and what has a dimension of such a size behind them. Sizes that
// something else has from outside are left, since they tell nothing. A call that varies without
// need is a barrier, and costs no bit. False where a call cannot be one: the record is of no use
// then.
[[nodiscard]] bool let_equal_shapes_vary(StepRecord& record, const ShapedByData& by_data);

}  // namespace berth::torch::step
