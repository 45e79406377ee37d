#pragma once

#include "csrc/graph/step_from_trace.h"
#include "csrc/torch/shared/backend.h"
#include "csrc/torch/shared/range_numbers.h"

#include <cstdint>

namespace berth::torch::step {

// While it stands, traces that are being written say that a step runs as it was written.
class WrittenStep {
 public:
  WrittenStep() {
    for (int n = 0; n < kMaxBackends; ++n)
      if (berth::Recorder* const trace = trace_of(n))
        ranges_[n] = begin_range(*trace, graph::kStepRange, trace::RangeKind::kUser);
  }
  ~WrittenStep() {
    for (int n = 0; n < kMaxBackends; ++n)
      if (berth::Recorder* const trace = ranges_[n] == 0 ? nullptr : trace_of(n))
        trace->append(trace::RangeEnd{.range = ranges_[n]});
  }
  WrittenStep(const WrittenStep&) = delete;
  WrittenStep& operator=(const WrittenStep&) = delete;

 private:
  static berth::Recorder* trace_of(int n) {
    Backend* const one = backend(n);
    return one == nullptr ? nullptr : one->recorder();
  }
  std::uint64_t ranges_[kMaxBackends] = {};  // in each trace; 0: not in it
};

}  // namespace berth::torch::step
