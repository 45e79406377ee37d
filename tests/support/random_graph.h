#pragma once

#include "csrc/graph/graph.h"

#include <algorithm>
#include <random>
#include <utility>

namespace berth::test {

// A random legal graph of `operators`: residents, inputs, storages that are written again, with or
// without a look at what they hold, alternatives, pairs in place, traits and control edges. Sizes
// are 1 to 8 bytes; every read is of all of its storage. Operators are recorded by number, or in an
// order of their own.
inline graph::Graph random_graph(std::mt19937& random, std::size_t operators) {
  using namespace graph;
  const auto chance = [&](double p) { return std::uniform_real_distribution<>(0, 1)(random) < p; };
  Graph graph;
  std::vector<ValueId> values;  // the newest of each storage
  const auto add_storage = [&](StorageClass kind) {
    graph.storages.push_back({1 + random() % 8, kind, trace::RoleKind::kUnknown});
    return static_cast<StorageId>(graph.storages.size() - 1);
  };
  for (std::size_t k = random() % 3; k > 0; --k)
    values.push_back({add_storage(StorageClass::kResident), 0});
  for (std::size_t k = 1 + random() % 2; k > 0; --k)
    values.push_back({add_storage(StorageClass::kInput), 0});
  const auto read = [&](ValueId value) {
    return Read{value, 0, graph.storages[value.storage].bytes};
  };
  for (std::size_t n = 0; n < operators; ++n) {
    Operator op;
    op.name = "op" + std::to_string(n);
    Alternative way;
    way.ns = 1 + random() % 50;
    way.workspace = chance(0.3) ? random() % 6 : 0;
    std::vector<std::size_t> picked;
    for (std::size_t k = 1 + random() % 2; k > 0; --k) picked.push_back(random() % values.size());
    std::sort(picked.begin(), picked.end());
    picked.erase(std::unique(picked.begin(), picked.end()), picked.end());
    for (const std::size_t k : picked) way.reads.push_back(read(values[k]));
    for (std::size_t k = chance(0.85) ? 1 + random() % 2 : 0; k > 0; --k) {
      way.writes.push_back({add_storage(StorageClass::kStep), 1});
      if (chance(0.3)) way.in_place.emplace_back(values[picked[0]], way.writes.back());
      values.push_back(way.writes.back());
    }
    if (chance(0.25)) {  // one is written again
      ValueId& value = values[chance(0.6) ? picked[0] : random() % values.size()];
      const bool made_here = std::any_of(way.writes.begin(), way.writes.end(),
                                         [&](ValueId one) { return one == value; });
      if (!made_here) {
        ++value.version;
        way.writes.push_back(value);
      }
    }
    op.alternatives.push_back(way);
    if (chance(0.3)) {
      way.ns *= 2;
      way.workspace = 0;
      op.alternatives.push_back(way);
    }
    op.traits = {chance(0.06), chance(0.06), chance(0.03), chance(0.03)};
    op.traits.draws_again = op.traits.random && n % 2 == 0;
    graph.operators.push_back(op);
    if (n > 0 && chance(0.1))
      graph.control.emplace_back(static_cast<OperatorId>(random() % n), static_cast<OperatorId>(n));
  }
  if (!chance(0.5)) return graph;
  std::vector<OperatorId> number(operators);
  for (OperatorId op = 0; op < operators; ++op) number[op] = op;
  std::shuffle(number.begin(), number.end(), random);
  std::vector<Operator> renumbered(operators);
  for (OperatorId op = 0; op < operators; ++op) renumbered[number[op]] = graph.operators[op];
  graph.operators = std::move(renumbered);
  for (auto& [earlier, later] : graph.control) {
    earlier = number[earlier];
    later = number[later];
  }
  graph.order = number;
  return graph;
}

}  // namespace berth::test
