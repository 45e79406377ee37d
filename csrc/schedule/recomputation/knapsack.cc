#include "csrc/schedule/recomputation/knapsack.h"

#include "csrc/core/max_flow.h"
#include "csrc/schedule/recomputation/made_once.h"
#include "csrc/schedule/recomputation/operator_classes.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace berth::schedule {
namespace {

using Flags = std::vector<bool>;

constexpr std::size_t kQuanta = 10'000;  // of the whole, in the knapsack
constexpr Bytes kUnsavable = Bytes{1} << 57;
constexpr int kFar = 1 << 30;  // from the backward part: it never gets there

// A step as the partitioner sees it: the joint graph of forward and backward part.
class Partition {
 public:
  Partition(const graph::Graph& graph, const StageGraph& stages)
      : problem_(stages.problem),
        fusible_(problem_.nodes.size(), false),
        heavy_(problem_.nodes.size(), false),
        random_(problem_.nodes.size(), false),
        input_(problem_.nodes.size(), false),
        read_backward_(problem_.values.size(), false),
        fuses_forward_(problem_.values.size(), true),
        fuses_backward_(problem_.values.size(), true),
        distance_(problem_.values.size(), kFar) {
    for (StageNode n = 0; n < problem_.nodes.size(); ++n) {
      input_[n] = stages.operators[n] == StageGraph::kNoOperator;
      random_[n] = problem_.nodes[n].only_once;
      if (input_[n]) continue;
      fusible_[n] = is_fusible(graph.operators[stages.operators[n]].name);
      heavy_[n] = is_compute_intensive(graph.operators[stages.operators[n]].name);
    }
    find_backward(graph, stages);
    find_distances();
  }

  // In how far what is saved is ruled by what would be fused.
  enum class Bans : std::uint8_t { kAll, kNotFusible, kHeavy };
  struct Cut {
    Flags saved;   // by value
    Flags banned;  // by node: it is not recomputed
  };
  // `allowed`: nodes that may be recomputed all the same.
  [[nodiscard]] Cut cut(Bans bans, const Flags& allowed = {}) {
    Cut found{Flags(problem_.values.size(), false), Flags(problem_.nodes.size(), false)};
    flow_.clear();
    for (StageNode n = 0; n < problem_.nodes.size(); ++n) (void)flow_.add_vertex();
    for (StageValue v = 0; v < 2 * problem_.values.size(); ++v) (void)flow_.add_vertex();
    for (StageNode n = 0; n < problem_.nodes.size(); ++n) {
      found.banned[n] = is_banned(n, bans) && !(!allowed.empty() && allowed[n]);
      if (found.banned[n]) flow_.add_arc(MaxFlow::kSource, of(n), MaxFlow::kInfinite);
      for (const StageValue v : problem_.nodes[n].reads)
        flow_.add_arc(there(v), of(n), MaxFlow::kInfinite);
      for (const StageValue v : problem_.nodes[n].makes)
        flow_.add_arc(of(n), made(v), MaxFlow::kInfinite);
    }
    for (StageValue v = 0; v < problem_.values.size(); ++v) {
      flow_.add_arc(made(v), there(v), weight(v));
      if (read_backward_[v]) flow_.add_arc(there(v), MaxFlow::kSink, MaxFlow::kInfinite);
    }
    (void)flow_.run();
    for (StageValue v = 0; v < problem_.values.size(); ++v)
      found.saved[v] = flow_.reached(made(v)) && !flow_.reached(there(v));
    return found;
  }

  [[nodiscard]] std::int64_t bytes_of(const Flags& saved) const {
    std::int64_t bytes = 0;
    for (StageValue v = 0; v < problem_.values.size(); ++v)
      if (saved[v]) bytes += problem_.values[v].bytes;
    return bytes;
  }
  [[nodiscard]] std::int64_t bytes_made(StageNode n) const {
    std::int64_t bytes = 0;
    for (const StageValue v : problem_.nodes[n].makes) bytes += problem_.values[v].bytes;
    return bytes;
  }
  [[nodiscard]] std::int64_t cost(StageNode n) const {
    const StageProblem::NodeOf& node = problem_.nodes[n];
    const std::vector<StageAlternative>& alternatives =
        node.first.empty() ? node.in_place : node.first;
    return std::ranges::min(alternatives, {}, &StageAlternative::cost).cost;
  }
  // What cannot be recomputed: the step's inputs, and what is random.
  [[nodiscard]] Flags irreplaceable() const {
    Flags found(problem_.values.size(), false);
    for (StageNode n = 0; n < problem_.nodes.size(); ++n)
      if (input_[n] || random_[n])
        for (const StageValue v : problem_.nodes[n].makes) found[v] = true;
    return found;
  }
  // Whether the knapsack chooses if it is recomputed: what the backward part has use for.
  [[nodiscard]] bool is_choice(StageNode n) const {
    return !input_[n] && !random_[n] &&
           std::ranges::any_of(problem_.nodes[n].makes,
                               [this](StageValue v) { return distance_[v] < kFar; });
  }

  // What is saved is kept to its last use; all else is recomputed where it is wanted first, and
  // kept from there.
  [[nodiscard]] Recomputation plan(const Flags& saved) const {
    Recomputation plan(problem_);
    const Flags nothing(problem_.values.size(), false);
    keep_made_once(problem_, 1, problem_.stages.size() - 1, saved, nothing, plan);
    return plan;
  }

 private:
  [[nodiscard]] static MaxFlow::Vertex of(StageNode n) { return n + 2; }
  [[nodiscard]] MaxFlow::Vertex made(StageValue v) const {
    return static_cast<MaxFlow::Vertex>(2 + problem_.nodes.size() + 2 * v);
  }
  [[nodiscard]] MaxFlow::Vertex there(StageValue v) const { return made(v) + 1; }

  void find_backward(const graph::Graph& graph, const StageGraph& stages) {
    for (const StageProblem::NodeOf& node : problem_.nodes) {
      const auto n = static_cast<std::size_t>(&node - problem_.nodes.data());
      for (const StageValue v : node.reads)
        if (!fusible_[n] || !fusible_[problem_.values[v].maker]) fuses_forward_[v] = false;
    }
    for (std::size_t p = stages.border; p < stages.order.size(); ++p) {
      const StageProblem::StageOf& stage = problem_.stages[p - stages.border + 1];
      const bool fuses = is_fusible(graph.operators[stages.order[p]].name);
      for (const StageValue v : stage.alternatives.front().reads) {
        read_backward_[v] = true;
        if (!fuses || !fusible_[problem_.values[v].maker]) fuses_backward_[v] = false;
      }
    }
  }

  void find_distances() {
    for (StageValue v = 0; v < problem_.values.size(); ++v)
      if (read_backward_[v]) distance_[v] = 1;
    for (StageNode n = static_cast<StageNode>(problem_.nodes.size()); n-- > 0;) {
      int least = kFar;
      for (const StageValue v : problem_.nodes[n].makes) least = std::min(least, distance_[v]);
      if (least == kFar) continue;
      for (const StageValue v : problem_.nodes[n].reads)
        distance_[v] = std::min(distance_[v], least + 1);
    }
  }

  [[nodiscard]] Bytes weight(StageValue v) const {
    if (!problem_.values[v].keepable) return kUnsavable;
    const double far = std::pow(1.1, std::min(distance_[v], 100));
    const double unfused = fuses_forward_[v] && fuses_backward_[v] ? 2 : 1;
    return static_cast<Bytes>(
        std::min(static_cast<double>(problem_.values[v].bytes) * far * unfused, 0x1p56));
  }

  [[nodiscard]] bool is_banned(StageNode n, Bans bans) const {
    // mutant: kept-random
    if (input_[n] || random_[n]) return true;
    if (bans == Bans::kHeavy ? heavy_[n] : !fusible_[n]) return true;
    const StageProblem::NodeOf& node = problem_.nodes[n];
    if (bans == Bans::kAll && std::ranges::any_of(node.makes, [this](StageValue v) {
          return read_backward_[v] && !fuses_backward_[v];
        }))
      return true;
    std::int64_t taken = 0;
    for (const StageValue v : node.reads) taken += problem_.values[v].bytes;
    return 4 * bytes_made(n) < taken;
  }

  const StageProblem& problem_;
  Flags fusible_, heavy_, random_, input_;                // by node
  Flags read_backward_, fuses_forward_, fuses_backward_;  // by value
  std::vector<int> distance_;                             // by value, from the backward part
  MaxFlow flow_;
};

// 0-1 knapsack for all capacities at once, by dynamic programming.
class Knapsack {
 public:
  void add(std::size_t size, std::int64_t worth) {
    sizes_.push_back(size);
    taken_.emplace_back(kQuanta + 1, false);
    for (std::size_t room = kQuanta + 1; room-- > size;) {
      const std::int64_t with = best_[room - size] + worth;
      if (with <= best_[room]) continue;
      best_[room] = with;
      taken_.back()[room] = true;
    }
  }
  // By item: whether it is in the best of that capacity.
  [[nodiscard]] Flags best(std::size_t capacity) const {
    Flags in(sizes_.size(), false);
    for (std::size_t k = sizes_.size(); k-- > 0;) {
      in[k] = taken_[k][capacity];
      if (in[k]) capacity -= sizes_[k];
    }
    return in;
  }

 private:
  std::vector<std::size_t> sizes_;
  std::vector<Flags> taken_;  // by item and capacity
  std::vector<std::int64_t> best_ = std::vector<std::int64_t>(kQuanta + 1, 0);
};

}  // namespace

void knapsack_plans(const graph::Graph& graph, const StageGraph& stages, std::size_t grid,
                    const std::function<void(const Recomputation&)>& visit,
                    const std::function<bool()>& stop) {
  if (stages.border == stages.order.size()) return;
  Partition partition(graph, stages);
  const Flags irreplaceable = partition.irreplaceable();
  const Partition::Cut fastest = partition.cut(Partition::Bans::kAll);
  const Partition::Cut smaller = partition.cut(Partition::Bans::kNotFusible);
  const Partition::Cut smallest = partition.cut(Partition::Bans::kHeavy);
  const auto least = static_cast<double>(partition.bytes_of(irreplaceable));
  const double whole = static_cast<double>(partition.bytes_of(fastest.saved)) - least;
  const auto share_of = [&](const Flags& saved) {
    return (static_cast<double>(partition.bytes_of(saved)) - least) / whole;
  };

  Knapsack knapsack;
  std::vector<StageNode> items;
  for (StageNode n = 0; whole > 0 && n < smallest.banned.size(); ++n) {
    if (!smallest.banned[n] || !partition.is_choice(n)) continue;
    items.push_back(n);
    const double size = static_cast<double>(partition.bytes_made(n)) / whole;
    knapsack.add(static_cast<std::size_t>(std::llround(size * kQuanta)), partition.cost(n));
  }
  const auto saved_at = [&](double share) {
    if (share <= 0) return irreplaceable;
    if (share >= 1 || whole <= 0) return fastest.saved;
    if (share_of(smaller.saved) < share) return smaller.saved;
    if (share_of(smallest.saved) < share) return smallest.saved;
    const Flags in = knapsack.best(static_cast<std::size_t>(std::llround(share * kQuanta)));
    Flags allowed(smallest.banned.size(), false);
    for (std::size_t k = 0; k < items.size(); ++k) allowed[items[k]] = !in[k];
    return partition.cut(Partition::Bans::kHeavy, allowed).saved;
  };
  std::optional<Flags> before;
  for (std::size_t k = grid + 1; k-- > 0;) {
    if (stop()) return;
    Flags saved =
        saved_at(static_cast<double>(k) / static_cast<double>(std::max<std::size_t>(grid, 1)));
    if (before && *before == saved) continue;
    visit(partition.plan(saved));
    before = std::move(saved);
  }
}

}  // namespace berth::schedule
