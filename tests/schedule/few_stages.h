#pragma once

#include "csrc/schedule/recomputation/problem.h"

#include <algorithm>
#include <random>

namespace berth::test {

// A random problem of a few stages, small enough to try all plans: three to five operators, some
// in place, some with several alternatives, and closing operators with one alternative or two.
inline schedule::StageProblem few_stages(std::mt19937& random, schedule::StageRules rules) {
  using namespace schedule;
  StageProblem problem;
  problem.rules = rules;
  const bool monet = rules == StageRules::kMonet, checkmate = rules == StageRules::kCheckmate;
  const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
  const auto alternatives = [&] {
    std::vector<StageAlternative> found;
    for (std::size_t k = 1 + (checkmate ? 0 : random() % 2); k > 0; --k)
      found.push_back(
          {static_cast<std::int64_t>(random() % 20), static_cast<std::int64_t>(random() % 8)});
    return found;
  };
  const std::size_t nodes = 3 + random() % 3;
  for (StageNode n = 0; n < nodes; ++n) {
    StageProblem::NodeOf node;
    const auto made = static_cast<StageValue>(problem.values.size());
    for (StageValue value = 0; value < made; ++value)
      if (value + 1 == made || chance(30)) node.reads.push_back(value);
    const bool second = !monet && problem.values.size() + (nodes - n) < 5 && chance(40);
    for (StageValue value = made; value < made + (second ? 2 : 1); ++value) {
      node.makes.push_back(value);
      problem.values.push_back({static_cast<std::int64_t>(1 + random() % 12), n, chance(92)});
    }
    node.first = alternatives();
    if (chance(30)) node.again = alternatives();
    node.only_once = chance(6);
    if (!checkmate && n > 0 && chance(25)) {
      node.over = node.reads.back();
      const std::int64_t spared =
          std::min(problem.values[made].bytes, problem.values[*node.over].bytes);
      node.in_place = {{static_cast<std::int64_t>(random() % 20), -spared}};
    } else if (monet && n > 0 && !problem.nodes.back().with_previous && chance(25)) {
      node.with_previous = true;
      if (problem.nodes.back().over) {
        node.over = problem.nodes.back().over;
        node.in_place = {{static_cast<std::int64_t>(random() % 5), 0}};
      }
    }
    problem.nodes.push_back(std::move(node));
  }
  const auto values = static_cast<StageValue>(problem.values.size());
  if (monet)
    for (StageNode n = 0; n < nodes; ++n) {
      StageProblem::NodeOf& node = problem.nodes[n];
      for (StageValue value = 0; value < n; ++value) {
        bool stands = false;
        for (StageNode m = n; m < nodes; ++m)
          stands = stands || std::count(problem.nodes[m].reads.begin(),
                                        problem.nodes[m].reads.end(), value) > 0;
        if (!stands) continue;
        node.local.push_back(value);
        node.local_bytes += problem.values[value].bytes;
      }
    }
  if (checkmate) {
    for (StageNode n = 0; n < nodes; ++n) problem.stages.push_back({5, 0, {n}, {}});
    return problem;
  }
  problem.stages.push_back({5, 0, {static_cast<StageNode>(nodes - 1)}, {}});
  for (std::size_t t = 2 + random() % 3; t > 0; --t) {
    StageProblem::StageOf stage;
    stage.fixed = static_cast<std::int64_t>(random() % 6);
    stage.closing = stage.fixed + static_cast<std::int64_t>(random() % 10);
    for (std::size_t a = 1 + random() % 2; a > 0; --a) {
      StageProblem::AlternativesOf one;
      for (StageValue value = 0; value < values; ++value)
        if (chance(35)) one.reads.push_back(value);
      one.all = alternatives();
      stage.alternatives.push_back(std::move(one));
    }
    problem.stages.push_back(std::move(stage));
  }
  return problem;
}

}  // namespace berth::test
