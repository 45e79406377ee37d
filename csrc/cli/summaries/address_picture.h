#pragma once

#include "csrc/cli/summaries/picture.h"
#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"

#include <string>

namespace berth::cli {

// Address over operators of a legal schedule that has addresses; a box a birth or workspace. What
// lies outside the arena is not drawn. Copies out keep their bytes as long as `rates` say; the
// bound is the most that is alive, none where some of it lies outside.
[[nodiscard]] Picture picture_of(const graph::Schedule& schedule, const graph::Graph& graph,
                                 const graph::CopyRates& rates, const std::string& name);

}  // namespace berth::cli
