#pragma once

#include "csrc/trace/file.h"

#include <berth/place.h>

#include <optional>
#include <span>
#include <string>

namespace berth::cli {

// The line of a row in its file: the first is the header.
[[nodiscard]] constexpr std::size_t line_of(std::size_t row) noexcept { return row + 2; }

// The placement problem of a lifetimes CSV: a line, one lane, the buffers in the order of the rows.
// Throws Error(kUsage) where the sum of sizes, rounded up to `alignment`, is too large.
[[nodiscard]] Problem make_problem(std::span<const Lifetime> rows, Bytes alignment);

// The first two rows that are alive together and share a byte, in one line; nothing where the
// placement is legal. Shares no code with the planner. Requires as many offsets as rows.
[[nodiscard]] std::optional<std::string> find_overlap(std::span<const Lifetime> rows,
                                                      std::span<const Bytes> offsets);

// Why no placement fits `capacity`, with the line of the row at whose beginning more is alive, in
// one line; nothing where that is nowhere so.
[[nodiscard]] std::optional<std::string> find_overload(std::span<const Lifetime> rows,
                                                       Bytes alignment, Bytes capacity);

}  // namespace berth::cli
