#pragma once

#include "csrc/schedule/offload/offload_plan.h"
#include "csrc/schedule/offload/problem.h"

#include <algorithm>
#include <random>

namespace berth::test {

// A forward chain with some longer edges, and its mirror that reads what the forward part made.
inline schedule::offload::Problem random_copy_problem(std::mt19937& random, std::size_t forward,
                                                      bool all_recomputable = false) {
  using namespace schedule::offload;
  Problem problem;
  const Index ops = static_cast<Index>(2 * forward);
  problem.border = static_cast<Index>(forward);
  problem.operators.resize(ops);
  for (Index op = 0; op < ops; ++op) {
    problem.operators[op].ns = random() % 100;
    problem.operators[op].workspace = random() % 4 == 0 ? random() % 20 : 0;
    problem.operators[op].recomputable =
        op < problem.border && (all_recomputable || random() % 3 != 0);
  }
  for (Index op = 0; op < ops; ++op) {
    for (unsigned made = op < problem.border ? 1 + (random() % 5 == 0) : random() % 2; made > 0;
         --made) {
      Problem::ValueOf value;
      value.bytes = 1 + random() % 60;
      value.maker = op;
      for (Index reader = op + 1; reader < problem.border; ++reader)
        if (reader == op + 1 ? random() % 8 != 0
                             : random() % std::max<std::size_t>(6, forward) == 0)
          value.readers.push_back(reader);
      for (Index reader = std::max(op + 1, problem.border); reader < ops; ++reader)
        if (reader == ops - 1 - op || random() % std::max<std::size_t>(8, 3 * forward) == 0)
          value.readers.push_back(reader);
      problem.values.push_back(std::move(value));
    }
  }
  if (random() % 2 == 0) {
    Problem::ValueOf input;
    input.bytes = 1 + random() % 60;
    input.readers = {0, static_cast<Index>(random() % ops)};
    problem.values.push_back(std::move(input));
  }
  problem.constant = random() % 50;
  problem.derive();
  return problem;
}

// Any plan of the problem.
inline schedule::offload::OffloadPlan random_offload_plan(
    std::mt19937& random, const schedule::offload::Problem& problem) {
  using namespace schedule::offload;
  OffloadPlan plan = keep_all(problem);
  plan.waits = static_cast<OffloadPlan::Waits>(random() % 3);
  for (Value v = 0; v < problem.values.size(); ++v) {
    const Fate fate = static_cast<Fate>(random() % 3);
    if (may(problem, v, fate)) plan.choices[v].fate = fate;
  }
  Execution execution;
  execution.expand(problem, plan);
  for (Value v = 0; v < problem.values.size(); ++v) {
    if (execution.fate[v] != Fate::kOffload) continue;
    std::vector<Index> legal;
    for (Index op = 0; op < problem.operators.size(); ++op)
      if (execution.run_of[op] >= execution.last_before[v] &&
          execution.run_of[op] <= execution.first_after[v])
        legal.push_back(op);
    plan.choices[v].trigger = legal[random() % legal.size()];
  }
  return plan;
}

}  // namespace berth::test
