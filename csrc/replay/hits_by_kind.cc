#include "csrc/replay/hits_by_kind.h"

#include "csrc/core/checksum.h"
#include "csrc/trace/step_kinds.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace berth::replay {
namespace {

struct StepOf {
  std::uint64_t hash = 0, requests = 0;
};

// What lies between two marks of any lane.
std::vector<StepOf> steps_of(const Workload& workload) {
  std::vector<StepOf> steps;
  StepOf step;
  for (const Operation& operation : workload.operations) {
    if (operation.kind == Operation::Kind::kAllocate) {
      step.hash = hash_combine(hash_combine(step.hash, operation.lane), operation.size);
      ++step.requests;
    } else if (operation.kind == Operation::Kind::kStep) {
      steps.push_back(step);
      step = {};
    }
  }
  return steps;
}

}  // namespace

std::vector<KindResult> hits_by_kind(const Workload& workload,
                                     const std::vector<StepResult>& steps) {
  constexpr std::uint64_t kNew = 3;  // steps of a kind that may not be planned yet
  const std::vector<StepOf> all = steps_of(workload);
  std::unordered_map<std::uint64_t, std::uint64_t> times;
  std::unordered_map<std::uint64_t, std::unordered_set<std::uint64_t>> of_length;
  for (const StepOf& step : all) {
    ++times[step.hash];
    of_length[step.requests].insert(step.hash);
  }
  std::unordered_map<std::uint64_t, KindResult> kinds;  // by hash, or by requests; 0: once
  for (std::size_t i = 0; i < std::min(all.size(), steps.size()); ++i) {
    const StepOf& step = all[i];
    const bool many = of_length[step.requests].size() > StepKinds::kMostOfShape;
    const bool once = !many && times[step.hash] == 1;
    KindResult& kind = kinds[once ? 0 : many ? step.requests : step.hash];
    kind.step_requests = once ? 0 : step.requests;
    kind.many_sizes = many;
    kind.requests += steps[i].requests;
    kind.hits += steps[i].hits;
    kind.misses += steps[i].misses;
    if (++kind.steps <= kNew) continue;
    kind.late_requests += steps[i].requests;
    kind.late_hits += steps[i].hits;
  }
  std::vector<KindResult> result;
  for (const auto& [name, kind] : kinds) result.push_back(kind);
  std::sort(result.begin(), result.end(), [](const KindResult& a, const KindResult& b) {
    if ((a.step_requests == 0) != (b.step_requests == 0)) return b.step_requests == 0;
    if (a.steps != b.steps) return a.steps > b.steps;
    if (a.step_requests != b.step_requests) return a.step_requests > b.step_requests;
    return a.hits > b.hits;
  });
  return result;
}

}  // namespace berth::replay
