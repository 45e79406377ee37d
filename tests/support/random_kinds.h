#pragma once

#include "csrc/place/plan_step.h"
#include "csrc/plan/build_kinds.h"
#include "csrc/trace/step_kinds.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace berth::test {

// Kinds of one lane that begin alike here and there, with blocks that outlive their steps and
// blocks that live through those of others.
inline std::vector<StepKind> random_kinds(std::mt19937& random, bool alike) {
  std::vector<StepKind> kinds(2 + random() % 5);
  std::uint64_t hash = 0;
  const std::size_t most = 1 + random() % 30;
  for (StepKind& kind : kinds) {
    kind.hash = ++hash;
    kind.seen = 2;
    kind.requests.resize(1 + random() % most);
    // Some are lived through.
    kind.release = static_cast<std::uint32_t>(
        random() % 2 == 0 ? kind.requests.size() : random() % (kind.requests.size() + 1));
    for (std::size_t k = 0; k < kind.requests.size(); ++k) {
      StepKind::Request& request = kind.requests[k];
      const std::size_t left = kind.requests.size() - k;
      request.bytes = random() % 4 == 0 ? 1 + random() % 1000 : 64 * (1 + k % 7);
      if (!alike) request.bytes += 4096 * hash;
      // A bucket here and there.
      request.least = hash % 3 == 0 ? 1 + random() % request.bytes : request.bytes;
      request.seen = 2;
      request.beyond = random() % 15 == 0 ? 2 : 0;
      request.outlives = random() % 6 == 0;
      request.length = static_cast<std::uint32_t>(
          request.outlives ? left : 1 + random() % std::min<std::size_t>(left, 8));
      if (!request.outlives) continue;
      request.wrapped = static_cast<std::uint32_t>(random() % (kind.requests.size() + 1));
      if (random() % 3 == 0) request.behind = static_cast<std::uint32_t>(random() % 8);
    }
  }
  return kinds;
}

inline Plan planned(const std::vector<StepKind>& kinds) {
  const KindPlan frame = skeleton(kinds, {}, 64);
  PlaceOptions options;
  options.iteration_budget = 20;
  return with_placement(frame.plan, place_buffers(make_problem(frame), options), options);
}

}  // namespace berth::test
