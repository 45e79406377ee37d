#include "csrc/schedule/recomputation/cut_plans.h"

#include "csrc/core/max_flow.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace berth::schedule {
namespace {

constexpr double kPriceSpan = 1e4;    // from the mean cost of a byte, both ways
constexpr double kMostFlow = 0x1p52;  // what the sum of all capacities is scaled to

class Cutter {
 public:
  explicit Cutter(const StageProblem& problem) : problem_(problem), wanted_(problem.values.size()) {
    for (std::size_t t = 0; t < problem.stages.size(); ++t)
      if (!problem.stages[t].alternatives.empty())
        for (const StageValue value : problem.stages[t].alternatives[0].reads)
          want(wanted_[value], t);
    for (StageNode n = 0; n < problem.nodes.size(); ++n) {
      cost_.push_back(cost_of(n));
      if (cost_.back()) all_cost_ += *cost_.back();
    }
    for (const StageProblem::ValueOf& value : problem.values)
      all_bytes_ += static_cast<double>(value.bytes);
  }

  // What a byte costs on average.
  [[nodiscard]] double mean_price() const { return (all_cost_ + 1) / (all_bytes_ + 1); }

  Recomputation plan(double price) {
    cut(price);
    Recomputation plan(problem_);
    std::vector<Uses> uses = wanted_;
    for (StageNode n = static_cast<StageNode>(problem_.nodes.size()); n-- > 0;) {
      const StageProblem::NodeOf& node = problem_.nodes[n];
      Uses of_node;
      for (const StageValue value : node.makes)
        if (uses[value].first) want(of_node, *uses[value].first);
      const bool again = recomputed_[n] && of_node.first;
      if (again)
        for (const StageValue value : node.reads) want(uses[value], *of_node.first);
      const std::size_t from = again ? *of_node.first : 0;
      for (const StageValue value : node.makes)
        if (problem_.values[value].keepable)
          for (std::size_t row = from + 1; row <= uses[value].last; ++row)
            plan.kept.add(row, value);
    }
    return plan;
  }

 private:
  // Stages that want a value.
  struct Uses {
    std::optional<std::size_t> first;
    std::size_t last = 0;
  };
  static void want(Uses& uses, std::size_t stage) {
    uses.first = std::min(uses.first.value_or(stage), stage);
    uses.last = std::max(uses.last, stage);
  }

  // Of a second run; nothing: it must not be recomputed.
  [[nodiscard]] std::optional<double> cost_of(StageNode n) const {
    const StageProblem::NodeOf& node = problem_.nodes[n];
    if (node.only_once || node.last_stage < problem_.stages.size()) return std::nullopt;
    std::optional<double> least;
    for (const auto* alternatives :
         {node.again.empty() ? &node.first : &node.again, &node.in_place})
      for (const StageAlternative& alternative : *alternatives)
        least = std::min(least.value_or(static_cast<double>(alternative.cost)),
                         static_cast<double>(alternative.cost));
    return least;
  }

  // The source's side: of operators those that are not recomputed, of values those that nobody
  // needs.
  void cut(double price) {
    const double scale = kMostFlow / (all_cost_ + price * all_bytes_ + 1);
    const auto capacity = [scale](double cost) { return static_cast<Bytes>(cost * scale) + 1; };
    network_.clear();
    std::vector<std::uint32_t> once, idle;
    for (StageNode n = 0; n < problem_.nodes.size(); ++n) {
      once.push_back(cost_[n] ? network_.add_vertex() : MaxFlow::kSource);
      if (cost_[n]) network_.add_arc(MaxFlow::kSource, once[n], capacity(*cost_[n]));
    }
    for (StageValue value = 0; value < problem_.values.size(); ++value) {
      const StageProblem::ValueOf& one = problem_.values[value];
      idle.push_back(network_.add_vertex());
      network_.add_arc(
          once[one.maker], idle[value],
          one.keepable ? capacity(price * static_cast<double>(one.bytes)) : MaxFlow::kInfinite);
      if (wanted_[value].first) network_.add_arc(idle[value], MaxFlow::kSink, MaxFlow::kInfinite);
    }
    for (StageNode n = 0; n < problem_.nodes.size(); ++n)
      if (cost_[n])
        for (const StageValue value : problem_.nodes[n].reads)
          network_.add_arc(idle[value], once[n], MaxFlow::kInfinite);
    (void)network_.run();
    recomputed_.assign(problem_.nodes.size(), false);
    for (StageNode n = 0; n < problem_.nodes.size(); ++n)
      recomputed_[n] = cost_[n] && !network_.reached(once[n]);
  }

  const StageProblem& problem_;
  std::vector<Uses> wanted_;                 // by value: by closing operators
  std::vector<std::optional<double>> cost_;  // by node
  double all_cost_ = 0, all_bytes_ = 0;
  MaxFlow network_;
  std::vector<bool> recomputed_;  // by node
};

}  // namespace

void cut_plans(const StageProblem& problem, std::size_t grid,
               const std::function<bool(const Recomputation&)>& visit,
               const std::function<bool()>& stop) {
  if (problem.rules != StageRules::kExact || problem.stages.size() < 2 ||
      !problem.stages[1].must_run.empty())
    return;
  Cutter cutter(problem);
  const double factor = std::pow(kPriceSpan * kPriceSpan, 1.0 / static_cast<double>(grid));
  double price = cutter.mean_price() / kPriceSpan;
  std::optional<double> fits;
  for (std::size_t k = 0; k < grid && !fits; ++k, price *= factor) {
    if (stop()) return;
    if (visit(cutter.plan(price))) fits = price;
  }
  if (!fits) return;
  double too_low = *fits / factor;
  for (std::size_t k = 0; k < grid; ++k) {
    if (stop()) return;
    const double between = std::sqrt(too_low * *fits);
    (visit(cutter.plan(between)) ? *fits : too_low) = between;
  }
}

}  // namespace berth::schedule
