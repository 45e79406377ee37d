#include "csrc/schedule/offload/triggers.h"

#include <algorithm>

namespace berth::schedule::offload {

void Triggers::set(OffloadPlan& plan, const std::vector<std::int32_t>& lead) {
  execution_.expand(problem_, plan);
  const std::vector<Execution::Run>& runs = execution_.runs;
  start_.resize(runs.size());
  std::uint64_t now = 0;
  for (Index run = 0; run < runs.size(); ++run) {
    start_[run] = now;
    now += problem_.operators[runs[run].op].ns;
  }
  std::uint64_t next = now;                                  // where the reload after it begins
  Index at = static_cast<Index>(runs.size());                // its trigger
  Index op = static_cast<Index>(problem_.operators.size());  // the first that runs later, not again
  for (Index run = static_cast<Index>(runs.size()); run-- > problem_.border;) {
    if (!runs[run].again) op = runs[run].op;
    for (const Value v : problem_.operators[runs[run].op].reads) {
      if (execution_.fate[v] != Fate::kOffload || execution_.first_after[v] != run) continue;
      const std::uint64_t ns = copy_ns(problem_.values[v].bytes, machine_.in.loaded);
      // mutant: copies-order
      const std::uint64_t deadline = std::min(start_[run], next);
      next = deadline - std::min(deadline, ns + ns / 10);
      at = std::min(at, run - 1);
      while (at > 0 && (runs[at].again || start_[at] > next)) --at;
      const std::int64_t wanted = std::int64_t{runs[at].op} - (lead.empty() ? 0 : lead[v]);
      plan.choices[v].trigger = static_cast<Index>(
          std::clamp<std::int64_t>(wanted, runs[execution_.last_before[v]].op,
                                   std::int64_t{op} - (runs[run].again ? 1 : 0)));
    }
  }
}

}  // namespace berth::schedule::offload
