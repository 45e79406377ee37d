#pragma once

#include "csrc/schedule/recomputation/model.h"

#include <algorithm>
#include <random>

namespace berth::test {

namespace detail {

inline std::vector<schedule::StageAlternative> random_alternatives(std::mt19937& random,
                                                                   std::int64_t least_workspace) {
  std::vector<schedule::StageAlternative> alternatives;
  for (std::size_t k = 1 + random() % 3; k > 0; --k)
    alternatives.push_back({static_cast<std::int64_t>(1 + random() % 20),
                            least_workspace + static_cast<std::int64_t>(random() % 20)});
  return alternatives;
}

// What stands beside each operator by MONeT: what it reads, and what was made before it for later.
inline void find_local(schedule::StageProblem& problem) {
  for (std::size_t n = 0; n < problem.nodes.size(); ++n)
    for (schedule::StageValue v = 0; v < n; ++v) {
      const bool read =
          std::any_of(problem.nodes.begin() + static_cast<std::ptrdiff_t>(n), problem.nodes.end(),
                      [&](const auto& node) { return std::ranges::count(node.reads, v) > 0; });
      if (!read) continue;
      problem.nodes[n].local.push_back(v);
      problem.nodes[n].local_bytes += problem.values[v].bytes;
    }
}

}  // namespace detail

// A random problem by any rules, whose budget lies between what is too little and a little too
// much. Checkmate has as many stages as operators.
//
// kExact: operators with several results, in place where that is wanted and where it must be, such
// that run once, several alternatives. kMonet: masks, algorithms, negative workspaces. Both: up to
// three alternatives of what closes a stage.
inline schedule::StageProblem random_stage_problem(std::mt19937& random, schedule::StageRules rules,
                                                   std::size_t nodes, std::size_t stages) {
  using namespace schedule;
  const bool exact = rules == StageRules::kExact, monet = rules == StageRules::kMonet;
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  StageProblem problem;
  problem.rules = rules;
  std::vector<bool> gone;  // values whose bytes were written over
  for (StageNode n = 0; n < nodes; ++n) {
    StageProblem::NodeOf node;
    node.with_previous = monet && n > 1 && !problem.nodes[n - 1].with_previous && one_in(5);
    if (node.with_previous)
      node.reads = problem.nodes[n - 1].reads;
    else
      for (StageValue v = 0; v < problem.values.size(); ++v)
        if (!gone[v] && (v + 1 == problem.values.size() ? !one_in(5) : one_in(4)))
          node.reads.push_back(v);
    node.first = detail::random_alternatives(random, monet && one_in(3) ? -8 : 0);
    if (rules != StageRules::kCheckmate && one_in(3))
      node.again = detail::random_alternatives(random, 0);
    node.only_once = one_in(8);
    if (rules != StageRules::kCheckmate && !node.reads.empty() && !node.with_previous &&
        one_in(3)) {
      node.over = node.reads[random() % node.reads.size()];
      node.in_place =
          detail::random_alternatives(random, exact ? -problem.values[*node.over].bytes : -4);
      if (exact && one_in(3)) {
        node.always_in_place = true;
        gone[*node.over] = true;
        problem.values[*node.over].keepable = false;
      }
    }
    if (node.with_previous) node.in_place = detail::random_alternatives(random, -4);
    for (std::size_t made = exact && one_in(4) ? 2 : 1; made > 0; --made) {
      node.makes.push_back(static_cast<StageValue>(problem.values.size()));
      problem.values.push_back({static_cast<std::int64_t>(1 + random() % 30), n});
      gone.push_back(false);
    }
    problem.nodes.push_back(std::move(node));
  }
  if (monet) detail::find_local(problem);
  const auto fixed = static_cast<std::int64_t>(random() % 20);
  if (rules == StageRules::kCheckmate) {
    for (StageNode n = 0; n < nodes; ++n) problem.stages.push_back({fixed, 0, {n}, {}});
  } else {
    problem.stages.push_back({fixed, 0, {}, {}});
    // By our rules the forward part is all that is there; MONeT's runs what its last one needs.
    for (StageNode n = exact ? 0 : static_cast<StageNode>(nodes - 1); n < nodes; ++n)
      problem.stages[0].must_run.push_back(n);
    for (std::size_t t = 1; t < stages; ++t) {
      StageProblem::StageOf stage{static_cast<std::int64_t>(random() % 20),
                                  static_cast<std::int64_t>(random() % 30),
                                  {},
                                  {}};
      for (std::size_t a = 1 + (one_in(2) ? random() % 3 : 0); a > 0; --a) {
        StageProblem::AlternativesOf one;
        for (StageValue v = 0; v < problem.values.size(); ++v)
          if (!gone[v] && (v + t == problem.values.size() || one_in(5))) one.reads.push_back(v);
        one.all = detail::random_alternatives(random, 0);
        stage.alternatives.push_back(std::move(one));
      }
      problem.stages.push_back(std::move(stage));
    }
  }
  const auto model = StageModel::make(problem);
  const std::int64_t most = evaluate(*model, keep_everything(problem)).peak;
  problem.budget = most * static_cast<std::int64_t>(45 + random() % 60) / 100;
  return problem;
}

}  // namespace berth::test
