#pragma once

#include "csrc/graph/graph.h"
#include "csrc/schedule/recomputation/model.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

namespace berth::test {

// The same operators, all from some place in the recorded order on as the backward part.
inline void split(graph::Graph& graph, std::mt19937& random) {
  if (graph.operators.empty()) return;
  const std::size_t border = 1 + random() % graph.operators.size();
  for (std::size_t p = 0; p < graph.operators.size(); ++p) {
    const graph::OperatorId op =
        graph.order.empty() ? static_cast<graph::OperatorId>(p) : graph.order[p];
    graph.operators[op].phase = p < border ? graph::Phase::kForward : graph::Phase::kBackward;
  }
}

// A plan with rows that are as good as any.
inline schedule::Recomputation any_plan(const schedule::StageProblem& problem,
                                        std::mt19937& random) {
  schedule::Recomputation plan = keep_everything(problem);
  for (std::size_t row = 1; row < problem.stages.size(); ++row)
    for (schedule::StageValue value = 0; value < problem.values.size(); ++value)
      if (problem.values[value].keepable && random() % 4 == 0) plan.kept.flip(row, value);
  for (std::size_t t = 0; t < problem.stages.size(); ++t)
    if (!problem.stages[t].alternatives.empty())
      plan.alternatives[t] =
          static_cast<std::uint8_t>(random() % problem.stages[t].alternatives.size());
  return plan;
}

// Forward operators, each the input of the next, and behind them one for each that reads its
// result and that of the one before, the last first. Name, time and bytes of each
// forward one; the others take 1 and make no bytes.
struct Link {
  std::string name;
  std::uint64_t ns;
  Bytes bytes;
};
inline graph::Graph chain(const std::vector<Link>& links, const std::string& backward) {
  graph::Graph graph;
  const auto add = [&](const std::string& name, std::uint64_t ns, Bytes bytes, graph::Phase phase,
                       std::vector<graph::StorageId> reads) {
    graph::Operator op;
    op.name = name;
    op.phase = phase;
    op.alternatives = {
        {ns, 0, {}, {{static_cast<graph::StorageId>(graph.storages.size()), 1}}, {}}};
    for (const graph::StorageId s : reads)
      op.alternatives[0].reads.push_back({{s, 1}, 0, graph.storages[s].bytes});
    graph.storages.push_back({bytes, graph::StorageClass::kStep, trace::RoleKind::kUnknown});
    graph.operators.push_back(std::move(op));
  };
  const auto count = static_cast<graph::StorageId>(links.size());
  for (graph::StorageId k = 0; k < count; ++k)
    add(links[k].name, links[k].ns, links[k].bytes, graph::Phase::kForward,
        k > 0 ? std::vector<graph::StorageId>{k - 1} : std::vector<graph::StorageId>{});
  for (graph::StorageId k = count; k-- > 0;) {
    if (k + 1 < count)
      add(backward, 1, 0, graph::Phase::kBackward, {k, 2 * count - 2 - k});
    else
      add(backward, 1, 0, graph::Phase::kBackward, {k});
  }
  return graph;
}

}  // namespace berth::test
