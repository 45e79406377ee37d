#pragma once

#include "csrc/schedule/order/problem.h"

#include <algorithm>
#include <random>

namespace berth::test {

// A random graph: each node makes one or two values or none, read by some of the later ones; some
// inputs, control edges and workspaces. Numbers are shuffled, so that they are no order.
inline schedule::OrderProblem random_order_problem(std::mt19937& random, std::size_t nodes,
                                                   double density = 0.3) {
  using schedule::Node;
  schedule::OrderProblem problem;
  problem.nodes.resize(nodes);
  std::vector<Node> number(nodes);
  for (Node n = 0; n < nodes; ++n) number[n] = n;
  std::shuffle(number.begin(), number.end(), random);
  const auto chance = [&](double p) { return std::uniform_real_distribution<>(0, 1)(random) < p; };
  const auto add_value = [&](std::size_t first_reader, Node maker) {
    schedule::OrderProblem::ValueOf value{random() % 20, maker, {}};
    for (std::size_t reader = first_reader; reader < nodes; ++reader)
      if (chance(density)) value.readers.push_back(number[reader]);
    problem.values.push_back(std::move(value));
  };
  for (std::size_t k = 0; k < nodes; ++k) {
    if (chance(0.1)) problem.nodes[number[k]].workspace = random() % 30;
    for (std::size_t made = random() % 3; made > 0; --made) add_value(k + 1, number[k]);
    if (k + 1 < nodes && chance(0.1))
      problem.control.emplace_back(number[k], number[k + 1 + random() % (nodes - k - 1)]);
  }
  for (std::size_t inputs = random() % 3; inputs > 0; --inputs) add_value(0, schedule::kNoNode);
  problem.constant = random() % 50;
  problem.derive();
  return problem;
}

}  // namespace berth::test
