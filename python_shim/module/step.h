#pragma once

#include "csrc/place/plan_trace.h"
#include "csrc/plan/plan.h"

#include <cstdint>
#include <vector>

namespace berth::python {

// What one lane asks for in one kind of step, in order: of a trace, or of a plan.
struct LaneStep {
  struct Request {
    Bytes bytes = 0;           // as asked; of a bucket the most
    Bytes least = 0;           // of a bucket the least, else equal
    Bytes offset = 0;          // of a plan; all ones where the pool serves it
    std::uint32_t length = 0;  // requests of the lane until it is freed; 0: not known
    std::uint32_t planned = 0;
  };

  std::uint64_t lane = 0;  // key of the stream or thread
  std::uint64_t seen = 0;  // steps of a trace; 0 of a plan
  bool placed = false;     // of a plan
  bool bucket = false;     // stands for steps of many lengths
  std::vector<Request> requests;
};

// The kinds of steps of a run, one for each lane that is in them.
[[nodiscard]] std::vector<LaneStep> steps_of(const Repeats& repeats);
// The paths of a plan: the requests of each with their places.
[[nodiscard]] std::vector<LaneStep> steps_of(const Plan& plan);

}  // namespace berth::python
