#include "csrc/schedule/order/min_cut.h"

#include <algorithm>
#include <numeric>

namespace berth::schedule {
namespace {

constexpr std::uint32_t kSource = 0, kSink = 1;
constexpr Bytes kInfinite = std::numeric_limits<Bytes>::max() / 2;
constexpr std::uint32_t kUnseen = std::numeric_limits<std::uint32_t>::max();

}  // namespace

MinCut::MinCut(const OrderProblem& problem)
    : problem_(problem), ancestors_(problem.nodes.size()), fates_(problem.nodes.size()),
      executed_(problem.nodes.size()), vertex_(problem.nodes.size()) {
  for (const Node node : problem.first_order()) {
    for (const Node before : problem.nodes[node].before) {
      ancestors_.add(node, before);
      ancestors_.add_row(node, before);
    }
  }
}

Bytes MinCut::live(Node v) { return live(v, {}, 0, 0); }

// O(V E) at worst, a few sweeps over the network in practice (Dinic 1970).
Bytes MinCut::live(Node v, const std::vector<std::uint32_t>& position, std::uint32_t first,
                   std::uint32_t last, Side side) {
  used_ = 2;
  if (arcs_.size() < 2) arcs_.resize(2);
  arcs_[kSource].clear();
  arcs_[kSink].clear();
  for (Node n = 0; n < problem_.nodes.size(); ++n) {
    const bool before = ancestors_.has(v, n), after = n == v || ancestors_.has(n, v);
    const bool early = !position.empty() && position[n] < first;
    const bool late = !position.empty() && position[n] > last;
    fates_[n] = before || (early && !after)  ? Fate::kExecuted
                : after || (late && !before) ? Fate::kLater
                                             : Fate::kOpen;
    vertex_[n] = fates_[n] == Fate::kExecuted ? kSource : fates_[n] == Fate::kLater ? kSink : kUnseen;
    if (fates_[n] != Fate::kOpen) continue;
    vertex_[n] = static_cast<std::uint32_t>(used_++);
    if (arcs_.size() < used_) arcs_.emplace_back();
    arcs_[vertex_[n]].clear();
  }
  // What is executed is closed under predecessors.
  for (Node n = 0; n < problem_.nodes.size(); ++n) {
    if (fates_[n] != Fate::kOpen) continue;
    for (const Node before : problem_.nodes[n].before) {
      if (fates_[before] == Fate::kOpen) add_arc(vertex_[n], vertex_[before], kInfinite);
      if (fates_[before] == Fate::kLater) add_arc(vertex_[n], kSink, kInfinite);
    }
    for (const Node after : problem_.nodes[n].after)
      if (fates_[after] == Fate::kExecuted) add_arc(kSource, vertex_[n], kInfinite);
  }
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
    const std::uint32_t from = made == Fate::kExecuted ? kSource : vertex_[value.maker];
    if (kept) {
      add_arc(from, kSink, value.bytes);
      continue;
    }
    const auto paid = static_cast<std::uint32_t>(used_++);
    if (arcs_.size() < used_) arcs_.emplace_back();
    arcs_[paid].clear();
    add_arc(from, paid, value.bytes);
    for (const Node reader : value.readers)
      if (fates_[reader] == Fate::kOpen) add_arc(paid, vertex_[reader], kInfinite);
  }
  const Bytes cut = max_flow();
  find_side(side);
  return always + cut;
}

void MinCut::add_arc(std::uint32_t from, std::uint32_t to, Bytes capacity) {
  arcs_[from].push_back({to, static_cast<std::uint32_t>(arcs_[to].size()), capacity});
  arcs_[to].push_back({from, static_cast<std::uint32_t>(arcs_[from].size() - 1), 0});
}

bool MinCut::find_levels() {
  level_.assign(used_, kUnseen);
  queue_.clear();
  queue_.push_back(kSource);
  level_[kSource] = 0;
  for (std::size_t head = 0; head < queue_.size(); ++head) {
    const std::uint32_t at = queue_[head];
    for (const Arc& arc : arcs_[at]) {
      if (arc.left == 0 || level_[arc.to] != kUnseen) continue;
      level_[arc.to] = level_[at] + 1;
      queue_.push_back(arc.to);
    }
  }
  return level_[kSink] != kUnseen;
}

// Pushes along the levels, without recursion: a path may be as long as the graph.
Bytes MinCut::push(std::uint32_t start, Bytes most) {
  std::vector<Arc*> path;
  std::uint32_t at = start;
  while (at != kSink) {
    bool moved = false;
    for (std::uint32_t& k = next_[at]; k < arcs_[at].size(); ++k) {
      Arc& arc = arcs_[at][k];
      if (arc.left == 0 || level_[arc.to] != level_[at] + 1) continue;
      path.push_back(&arc);
      at = arc.to;
      moved = true;
      break;
    }
    if (moved) continue;
    if (at == start) return 0;
    level_[at] = kUnseen;  // leads nowhere
    Arc* const last = path.back();
    path.pop_back();
    at = arcs_[last->to][last->back].to;
    ++next_[at];
  }
  for (const Arc* const arc : path) most = std::min(most, arc->left);
  for (Arc* const arc : path) {
    if (arc->left < kInfinite / 2) arc->left -= most;
    Arc& back = arcs_[arc->to][arc->back];
    if (back.left < kInfinite / 2) back.left += most;
  }
  return most;
}

Bytes MinCut::max_flow() {
  Bytes flow = 0;
  while (find_levels()) {
    next_.assign(used_, 0);
    while (const Bytes pushed = push(kSource, kInfinite)) flow += pushed;
  }
  return flow;
}

void MinCut::find_side(Side side) {
  const auto set = [this](const auto& is_executed) {
    for (Node n = 0; n < problem_.nodes.size(); ++n)
      executed_[n] = fates_[n] == Fate::kExecuted || (fates_[n] == Fate::kOpen && is_executed(n));
  };
  // max_flow() ends with the levels of what the source still reaches.
  if (side == Side::kLeast) {
    set([this](Node n) { return level_[vertex_[n]] != kUnseen; });
    return;
  }
  std::vector<bool> reaches(used_, false);  // the sink
  queue_.clear();
  queue_.push_back(kSink);
  reaches[kSink] = true;
  for (std::size_t head = 0; head < queue_.size(); ++head) {
    for (const Arc& arc : arcs_[queue_[head]]) {
      if (reaches[arc.to] || arcs_[arc.to][arc.back].left == 0) continue;
      reaches[arc.to] = true;
      queue_.push_back(arc.to);
    }
  }
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
