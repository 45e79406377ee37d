#pragma once

#include "csrc/plan/plan.h"

#include <string>
#include <vector>

namespace berth::cli {

// Address over time: what a placement looks like. Plain data.
//
// A panel a path; a box that runs over the end of its period is drawn in two pieces.
struct Picture {
  struct Box {
    Bytes offset = 0, size = 0;
    std::uint64_t birth = 0, length = 0;
    bool faded = false;  // a prefix that another panel shows
  };
  struct Panel {
    std::string label;
    std::uint64_t period = 0;  // ticks shown
    std::vector<Box> boxes;
  };
  std::string title, about;                                        // none: the arena and its bound
  std::string address = "address in the arena";                    // of the axis
  std::string time = "time, requests of the step", unit = "tick";  // of the axis; of lifetimes
  Bytes arena = 0, bound = 0;                                      // no bound: 0
  std::vector<Panel> panels;
};

[[nodiscard]] Picture picture_of(const Plan& plan, const std::string& name);

// A self-contained SVG of 1200 by 640 points: boxes coloured by lifetime, the live bytes as a line.
// Of more than 40,000 boxes the smallest are left out, and the picture says so.
[[nodiscard]] std::string to_svg(const Picture& picture);

}  // namespace berth::cli
