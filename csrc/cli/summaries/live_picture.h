#pragma once

#include "csrc/core/bytes.h"

#include <string>
#include <vector>

namespace berth::cli {

// Live bytes over the operators of a step, of one schedule beside another. Plain data.
struct LivePicture {
  struct Line {
    std::string label;
    std::vector<Bytes> live;  // while each operator runs, in the order of the runs
  };
  std::string title, subtitle;
  std::vector<Line> lines;  // at most three; the last is drawn over the others
  Bytes bound = 0;          // a dashed line; 0: none
};

// A self-contained SVG of 1200 by 560 points. Of more operators than points the largest of each
// point are drawn.
[[nodiscard]] std::string to_svg(const LivePicture& picture);

}  // namespace berth::cli
