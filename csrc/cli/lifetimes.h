#pragma once

#include "csrc/trace/file.h"

#include <berth/place.h>

#include <optional>
#include <span>
#include <string>

namespace berth::cli {

// The placement problem of a lifetimes CSV: a line, one lane, the buffers in the order of the rows.
[[nodiscard]] Problem make_problem(std::span<const Lifetime> rows, Bytes alignment);

// The first two rows that are alive together and share a byte, in one line; nothing where the
// placement is legal. Shares no code with the planner. Requires as many offsets as rows.
[[nodiscard]] std::optional<std::string> find_overlap(std::span<const Lifetime> rows,
                                                      std::span<const Bytes> offsets);

}  // namespace berth::cli
