#include "csrc/schedule/order/min_cut.h"

#include <algorithm>
#include <numeric>

namespace berth::schedule {
namespace {

constexpr MaxFlow::Vertex kSource = MaxFlow::kSource, kSink = MaxFlow::kSink;
constexpr Bytes kInfinite = MaxFlow::kInfinite;

}  // namespace

MinCut::MinCut(const OrderProblem& problem)
    : problem_(problem),
      ancestors_(problem.nodes.size()),
      fates_(problem.nodes.size()),
      executed_(problem.nodes.size()),
      vertex_(problem.nodes.size()) {
  for (const Node node : problem.first_order()) {
    for (const Node before : problem.nodes[node].before) {
      ancestors_.add(node, before);
      ancestors_.add_row(node, before);
    }
  }
}

Bytes MinCut::live(Node v) { return live(v, {}, 0, 0); }

Bytes MinCut::live(Node v, const std::vector<std::uint32_t>& position, std::uint32_t first,
                   std::uint32_t last, Side side) {
  flow_.clear();
  for (Node n = 0; n < problem_.nodes.size(); ++n) {
    const bool before = ancestors_.has(v, n), after = n == v || ancestors_.has(n, v);
    const bool early = !position.empty() && position[n] < first;
    const bool late = !position.empty() && position[n] > last;
    fates_[n] = before || (early && !after)  ? Fate::kExecuted
                : after || (late && !before) ? Fate::kLater
                                             : Fate::kOpen;
    vertex_[n] = fates_[n] == Fate::kExecuted ? kSource
                 : fates_[n] == Fate::kLater  ? kSink
                                              : flow_.add_vertex();
  }
  // What is executed is closed under predecessors.
  for (Node n = 0; n < problem_.nodes.size(); ++n) {
    if (fates_[n] != Fate::kOpen) continue;
    for (const Node before : problem_.nodes[n].before) {
      if (fates_[before] == Fate::kOpen) flow_.add_arc(vertex_[n], vertex_[before], kInfinite);
      if (fates_[before] == Fate::kLater) flow_.add_arc(vertex_[n], kSink, kInfinite);
    }
    for (const Node after : problem_.nodes[n].after)
      if (fates_[after] == Fate::kExecuted) flow_.add_arc(kSource, vertex_[n], kInfinite);
  }
  // mutant: order-constant
  Bytes always = problem_.constant + problem_.nodes[v].made;
  for (const OrderProblem::ValueOf& value : problem_.values) {
    if (value.maker == v || value.bytes == 0 || value.readers.empty()) continue;
    const Fate made = value.maker == kNoNode ? Fate::kExecuted : fates_[value.maker];
    if (made == Fate::kLater) continue;
    bool kept = false, open = false;
    for (const Node reader : value.readers) {
      kept |= fates_[reader] == Fate::kLater;
      open |= fates_[reader] == Fate::kOpen;
    }
    if (kept && made == Fate::kExecuted) {
      always += value.bytes;
      continue;
    }
    if (!kept && !open) continue;
    const MaxFlow::Vertex from = made == Fate::kExecuted ? kSource : vertex_[value.maker];
    if (kept) {
      flow_.add_arc(from, kSink, value.bytes);
      continue;
    }
    const MaxFlow::Vertex paid = flow_.add_vertex();
    flow_.add_arc(from, paid, value.bytes);
    for (const Node reader : value.readers)
      if (fates_[reader] == Fate::kOpen) flow_.add_arc(paid, vertex_[reader], kInfinite);
  }
  const Bytes cut = flow_.run();
  find_side(side);
  // mutant: order-bound
  return always + cut;
}

void MinCut::find_side(Side side) {
  const auto set = [this](const auto& is_executed) {
    for (Node n = 0; n < problem_.nodes.size(); ++n)
      executed_[n] = fates_[n] == Fate::kExecuted || (fates_[n] == Fate::kOpen && is_executed(n));
  };
  if (side == Side::kLeast) {
    set([this](Node n) { return flow_.reached(vertex_[n]); });
    return;
  }
  const std::vector<bool> reaches = flow_.reach_sink();
  set([&](Node n) { return !reaches[vertex_[n]]; });
}

OrderBound min_cut_bound(MinCut& cuts, const OrderProblem& problem, std::span<const Node> order,
                         std::uint32_t most_flows, const std::function<bool()>& stop) {
  const std::vector<Bytes> profile = live_bytes(problem, order);
  std::vector<std::size_t> steps(order.size());
  std::iota(steps.begin(), steps.end(), std::size_t{0});
  std::stable_sort(steps.begin(), steps.end(),
                   [&](std::size_t a, std::size_t b) { return profile[a] > profile[b]; });
  OrderBound bound{problem.constant, 0};
  for (const std::size_t step : steps) {
    if (profile[step] <= bound.bytes || bound.flows == most_flows || stop()) break;
    bound.bytes = std::max(bound.bytes, cuts.live(order[step]));
    ++bound.flows;
  }
  return bound;
}

}  // namespace berth::schedule
