#pragma once

#include "csrc/cli/core/output.h"
#include "csrc/trace/step_coverage.h"

#include <cstdint>
#include <optional>
#include <string>

namespace berth::cli {

// What `plan`, `show` and `record` say of the step found in a trace: whose it is, and how much of
// the run it covers, which is about the share of requests that a plan of it will hit.
class StepSummary {
 public:
  StepSummary(const Trace& trace, const Step& step)
      : coverage_(coverage_of(trace, step)), repeats_(step.repeats) {}

  // "lane 0 (thread 0, 66 marks), seen 60 times in a row"
  [[nodiscard]] std::string whose() const;
  // "98.20 % of 30,584 requests, 99.10 % of 1.4 GiB"
  [[nodiscard]] std::string covers() const;
  // Where that is less than half of either: the share, and the lane that is left out.
  [[nodiscard]] std::optional<std::string> warning() const;

  // The same as members of an object: lane, thread, covered_requests, covered_bytes, warning.
  void add_to(Json& json) const;

 private:
  StepCoverage coverage_;
  std::uint32_t repeats_;
};

}  // namespace berth::cli
