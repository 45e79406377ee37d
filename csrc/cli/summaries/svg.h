#pragma once

#include "csrc/core/bytes.h"

#include <string>
#include <string_view>

// What pictures have in common.
namespace berth::cli {

// A text within an SVG.
[[nodiscard]] std::string escape(std::string_view text);

// The least of 1, 2, 5 times a power of ten that cuts `range` into at most `most` parts.
[[nodiscard]] double nice_step(double range, double most);

struct Unit {
  const char* name;
  double bytes;
};
// In which an axis up to `most` is labelled.
[[nodiscard]] Unit unit_of(Bytes most);

// The row of a legend at (x, y) for a dashed line at the lower bound. No label beside the line: it
// would meet the legend where the bound is high.
[[nodiscard]] std::string bound_legend(double x, double y);

}  // namespace berth::cli
