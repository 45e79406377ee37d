#pragma once

#include "csrc/schedule/offload/offload_plan.h"
#include "csrc/schedule/offload/problem.h"

#include <cstdint>
#include <vector>

namespace berth::schedule::offload {

// Gives each reload of a plan its trigger, from the last first use backwards: a reload is to begin
// 1.1 times its duration before its use and before the reload after it, whichever is earlier, and
// its trigger is the last operator that starts by then if compute never waits. `lead` moves the
// trigger of each value to an operator that many places earlier, or later where negative, as far as
// is legal; empty: none. O(operators + reads); keeps its room between calls.
class Triggers {
 public:
  Triggers(const Problem& problem, const Machine& machine) : problem_(problem), machine_(machine) {}
  void set(OffloadPlan& plan, const std::vector<std::int32_t>& lead = {});

 private:
  const Problem& problem_;
  const Machine& machine_;
  Execution execution_;
  std::vector<std::uint64_t> start_;  // of each run, if compute never waits
};

}  // namespace berth::schedule::offload
