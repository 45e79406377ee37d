#pragma once

#include "csrc/core/bytes.h"
#include "csrc/trace/trace.h"

#include <berth/graph.h>

#include <array>
#include <string_view>

namespace berth::graph {

// Names of enumerators in files, by their numbers.
inline constexpr std::array<std::string_view, 4> kPhases = {"forward", "loss", "backward",
                                                            "optimizer"};
inline constexpr std::array<std::string_view, 3> kClasses = {"step", "input", "resident"};

}  // namespace berth::graph
